#include "runtime/parallel/sequence/chunked_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "runtime/autograd/run_state.h"

namespace ds::sequence_parallel {
namespace {

using activation::SavedTensor;
using kernels::AttentionRule;
using kernels::Mixed;
using kernels::Qkv;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// StoredChunk holds the stored tensors of a chunk (FPDT) for later steps.
struct StoredChunk {
  SavedTensor input;             // if the keeper moves it; otherwise autograd keeps it
  SavedTensor keys, gradients;   // keys and values, stacked; their gradients so far, in fp32
  SavedTensor values, log_sums;  // attention's result for its queries
  std::optional<activation::RunState> state;
};

// One layer's attention for a micro-batch, shared with the backward pass.
class ChunkedAttentionRun : public torch::CustomClassHolder {
 public:
  ChunkedAttentionRun(const std::vector<SequenceChunk>& chunks, const ChunkFunctions& parts,
                      const AttentionRule& rule, const ChunkedAttentionOptions& options,
                      const at::Tensor& x)
      : chunks_(chunks),
        parts_(parts),
        rule_(rule),
        keeper_(options.keeper != nullptr ? *options.keeper : activation::Keeper()),
        records_(Records(x, options)),
        fused_(x.device().is_cpu() && rule_.IsScaleAlone(chunks.back().all.end())),
        waiting_(chunks.size()) {
    const AttendsTo looks_at = [&](int queries, int keys) {
      return rule_.Sees(chunks_[At(queries)].all, chunks_[At(keys)].all);
    };
    const int count = static_cast<int>(chunks.size());
    forward_ = PlanForward(count, looks_at);
    backward_ = PlanBackward(count, looks_at);
  }

  at::Tensor Forward(std::size_t chunk, const at::Tensor& x);
  bool records() const { return records_; }
  bool keeps_inputs(c10::Device device) const { return keeper_.Moves(device); }
  // `x` is undefined if it was stored here. Returns its gradient; undefined if not needed.
  at::Tensor Backward(std::size_t chunk, at::Tensor x, bool needs_gradient,
                      const at::Tensor& upstream);

 private:
  static bool Records(const at::Tensor& x, const ChunkedAttentionOptions& options) {
    return c10::GradMode::is_enabled() && (options.trains || x.requires_grad());
  }
  static std::size_t At(int chunk) { return static_cast<std::size_t>(chunk); }

  kernels::FusedOptions OptionsOf(std::size_t queries, std::size_t keys) const {
    return {.scale = rule_.scale, .causal = queries == keys};
  }
  kernels::BlockRanges RangesOf(const Qkv& qkv, std::size_t queries, std::size_t keys) const {
    return {chunks_[queries].all, chunks_[keys].all, {0, qkv.q.size(0)}};
  }
  Mixed Attend(const Qkv& qkv, std::size_t queries, std::size_t keys) const {
    if (fused_) return kernels::AttendFused(qkv, OptionsOf(queries, keys));
    return kernels::AttendByRule(qkv, RangesOf(qkv, queries, keys), rule_);
  }
  Qkv AttendBackward(const at::Tensor& upstream, const Qkv& qkv, const Mixed& mixed,
                     std::size_t queries, std::size_t keys) const {
    if (fused_) return AttendFusedBackward(upstream, qkv, mixed, OptionsOf(queries, keys));
    return AttendByRuleBackward(upstream, qkv, mixed, RangesOf(qkv, queries, keys), rule_);
  }
  // Calls visit(keys, keys and values stacked) for the step's earlier chunks, while it prefetches
  // the next one. With `lets_go`, releases chunks after their last visit.
  template <typename Visit>
  void VisitEarlier(const ChunkStep& step, bool lets_go, const Visit& visit);
  void PrefetchFirst(const ChunkStep& step) const {
    if (!step.earlier.empty()) waiting_[At(step.earlier.front().keys)].keys.Prefetch();
  }
  Mixed AttendToAll(const at::Tensor& q, at::Tensor block, const ChunkStep& step);
  // Returns the gradients of a chunk's queries, keys and values.
  Qkv ToAllBackward(const at::Tensor& upstream, const Qkv& qkv, const Mixed& mixed,
                    const ChunkStep& step);
  // Returns the gradient of attention's values, from the gradient of the layer's contribution.
  at::Tensor FinishBackward(std::size_t chunk, const at::Tensor& values,
                            const at::Tensor& upstream) const;

  const std::vector<SequenceChunk> chunks_;
  const ChunkFunctions parts_;
  const AttentionRule rule_;
  const activation::Keeper keeper_;
  const bool records_, fused_;
  std::vector<ChunkStep> forward_, backward_;  // in execution order
  std::vector<StoredChunk> waiting_;           // by chunk
};

template <typename Visit>
void ChunkedAttentionRun::VisitEarlier(const ChunkStep& step, bool lets_go, const Visit& visit) {
  for (std::size_t i = 0; i < step.earlier.size(); ++i) {
    const KeyVisit& now = step.earlier[i];
    const at::Tensor block = waiting_[At(now.keys)].keys.Bring();
    if (i + 1 < step.earlier.size()) waiting_[At(step.earlier[i + 1].keys)].keys.Prefetch();
    visit(At(now.keys), block);
    if (lets_go && now.last) waiting_[At(now.keys)].keys = {};
  }
}

Mixed ChunkedAttentionRun::AttendToAll(const at::Tensor& q, at::Tensor block,
                                       const ChunkStep& step) {
  const std::size_t queries = At(step.queries);
  Mixed all = Attend({q, block[0], block[1]}, queries, queries);
  if (step.keeps_keys) waiting_[queries].keys = keeper_.Keep(block);
  block.reset();
  if (step.earlier.empty()) return {all.values.to(q.scalar_type()), all.log_sums};
  all.values = all.values.to(at::kFloat);
  VisitEarlier(step, /*lets_go=*/!records_, [&](std::size_t keys, const at::Tensor& earlier) {
    kernels::Merge(Attend({q, earlier[0], earlier[1]}, queries, keys), /*first=*/0, &all);
  });
  return {all.values.to(q.scalar_type()), all.log_sums};
}

at::Tensor ChunkedAttentionRun::Forward(std::size_t chunk, const at::Tensor& x) {
  const ChunkStep& step = forward_[chunk];
  StoredChunk& waiting = waiting_[chunk];
  PrefetchFirst(step);
  if (records_) waiting.state.emplace(x.device());
  Mixed mixed;
  {
    Qkv qkv = parts_.project(x.contiguous(), chunks_[chunk]);
    at::Tensor block = at::stack({qkv.k, qkv.v});
    qkv.k.reset();
    qkv.v.reset();
    mixed = AttendToAll(qkv.q, std::move(block), step);
  }
  if (records_) {
    if (keeper_.Moves(x.device())) waiting.input = keeper_.Keep(x);
    waiting.values = keeper_.Keep(mixed.values);
    waiting.log_sums = keeper_.Keep(mixed.log_sums);
  }
  return parts_.finish(mixed.values, chunks_[chunk]);
}

at::Tensor ChunkedAttentionRun::FinishBackward(std::size_t chunk, const at::Tensor& values,
                                               const at::Tensor& upstream) const {
  const at::Tensor leaf = values.detach().requires_grad_();
  const at::Tensor added =
      waiting_[chunk].state->RunAgain([&] { return parts_.finish(leaf, chunks_[chunk]); });
  torch::autograd::backward({added}, {upstream});
  return leaf.grad();
}

Qkv ChunkedAttentionRun::ToAllBackward(const at::Tensor& upstream, const Qkv& qkv,
                                       const Mixed& mixed, const ChunkStep& step) {
  const std::size_t queries = At(step.queries);
  Qkv sums = AttendBackward(upstream, qkv, mixed, queries, queries);
  if (!step.earlier.empty()) sums.q = sums.q.to(at::kFloat);
  VisitEarlier(step, /*lets_go=*/true, [&](std::size_t keys, const at::Tensor& earlier) {
    const Qkv part =
        AttendBackward(upstream, {qkv.q, earlier[0], earlier[1]}, mixed, queries, keys);
    sums.q.add_(part.q);
    keeper_.Add(at::stack({part.k, part.v}).to(at::kFloat), &waiting_[keys].gradients);
  });
  if (SavedTensor& later = waiting_[queries].gradients; later.defined()) {
    const at::Tensor of_later = later.Bring();
    sums.k = of_later[0] + sums.k;
    sums.v = of_later[1] + sums.v;
    later = {};
  }
  return {sums.q.to(qkv.q.scalar_type()), sums.k.to(qkv.k.scalar_type()),
          sums.v.to(qkv.v.scalar_type())};
}

at::Tensor ChunkedAttentionRun::Backward(std::size_t chunk, at::Tensor x, bool needs_gradient,
                                         const at::Tensor& upstream) {
  const ChunkStep& step = backward_[chunks_.size() - 1 - chunk];
  StoredChunk& waiting = waiting_[chunk];
  TORCH_CHECK(waiting.values.defined(), "a second backward pass ran through chunked attention");
  PrefetchFirst(step);
  Mixed mixed{waiting.values.Bring(), waiting.log_sums.Bring()};
  if (!x.defined()) x = waiting.input.Bring();
  const at::Tensor of_mixed = FinishBackward(chunk, mixed.values, upstream);
  x = x.contiguous().detach().requires_grad_(needs_gradient);
  Qkv qkv = waiting.state->RunAgain([&] { return parts_.project(x, chunks_[chunk]); });
  variable_list roots, of_roots;
  if (qkv.q.requires_grad() || qkv.k.requires_grad() || qkv.v.requires_grad()) {
    const Qkv given{qkv.q.detach(), qkv.k.detach(), qkv.v.detach()};
    const Qkv gradients = ToAllBackward(of_mixed.contiguous(), given, mixed, step);
    for (const auto& [root, of_root] :
         {std::pair(qkv.q, gradients.q), {qkv.k, gradients.k}, {qkv.v, gradients.v}}) {
      if (!root.requires_grad()) continue;
      roots.push_back(root);
      of_roots.push_back(of_root);
    }
  }
  waiting = {};
  mixed = {};
  qkv = {};
  if (!roots.empty()) torch::autograd::backward(roots, of_roots);
  return x.grad();
}

// Runs one chunk. `link` orders the chunks: the backward pass of one runs after the
// backward passes of all later ones.
class ChunkedAttentionFunction : public torch::autograd::Function<ChunkedAttentionFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& link,
                               const c10::intrusive_ptr<ChunkedAttentionRun>& run,
                               std::int64_t chunk) {
    context->saved_data["run"] = c10::IValue::make_capsule(run);
    context->saved_data["portion"] = chunk;
    context->saved_data["needs_gradient"] = x.requires_grad();
    if (!run->keeps_inputs(x.device())) context->save_for_backward({x});
    return {run->Forward(static_cast<std::size_t>(chunk), x), at::zeros_like(link)};
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto capsule = context->saved_data["run"].toCapsule();
    const variable_list saved = context->get_saved_variables();
    const at::Tensor of_x =
        static_cast<ChunkedAttentionRun*>(capsule.get())
            ->Backward(static_cast<std::size_t>(context->saved_data["portion"].toInt()),
                       saved.empty() ? at::Tensor() : saved[0],
                       context->saved_data["needs_gradient"].toBool(), upstream[0]);
    return {of_x, {}, {}, {}};
  }
};

}  // namespace

std::vector<SequenceChunk> ListChunks(std::int64_t tokens, std::int64_t chunk, int ranks) {
  std::vector<SequenceChunk> chunks;
  for (const TokenRange& all : SplitIntoChunks(tokens, chunk)) {
    chunks.push_back({all, {all.first / ranks, all.count / ranks}});
  }
  return chunks;
}

at::Tensor AttendInChunks(const at::Tensor& x, const std::vector<SequenceChunk>& chunks,
                          const ChunkFunctions& parts, const AttentionRule& rule,
                          const ChunkedAttentionOptions& options) {
  const auto run = c10::make_intrusive<ChunkedAttentionRun>(chunks, parts, rule, options, x);
  std::vector<std::int64_t> counts;
  for (const SequenceChunk& chunk : chunks) counts.push_back(chunk.own.count);
  const std::vector<at::Tensor> inputs = x.split_with_sizes(counts, /*dim=*/1);
  std::vector<at::Tensor> added;
  at::Tensor link = at::zeros({1}, x.options().dtype(at::kFloat)).requires_grad_(run->records());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!run->records()) {
      added.push_back(run->Forward(i, inputs[i]));
      continue;
    }
    const variable_list made =
        ChunkedAttentionFunction::apply(inputs[i], link, run, static_cast<std::int64_t>(i));
    added.push_back(made[0]);
    link = made[1];
  }
  return at::cat(added, /*dim=*/1);
}

}  // namespace ds::sequence_parallel
