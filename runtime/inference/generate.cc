#include "runtime/inference/generate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <span>

#include "runtime/models/layers/key_value_cache.h"

namespace ds::inference {
namespace {

// The prompts [first, first + count) of `all`, which run together.
struct PromptBatch {
  const std::vector<Prompt>& all;
  std::size_t first = 0, count = 0;
};

// A prompt with its unfinished text.
struct Live {
  std::size_t prompt = 0;            // index
  std::vector<std::int64_t> tokens;  // of the prompt and the text so far
  std::int64_t new_tokens = 0;
};

// Returns whether the frequencies of RoPE depend on the length of the text (dynamic NTK, longrope).
// Cached keys then become invalid when it grows (key_value_cache.h).
bool FollowsLength(const models::DecoderSpec& spec) {
  return spec.positions == models::Positions::kRotary &&
         (models::DependsOnLength(spec.rope) ||
          (spec.windowed_rope && models::DependsOnLength(*spec.windowed_rope)));
}

// Generates the texts of one batch of prompts.
class Generation {
 public:
  Generation(const BlockList& model, const models::DecoderSpec& spec, const PromptBatch& batch,
             const GenerateOptions& options, GenerationObserver& observer);

  bool done() const { return live_.empty(); }
  // Runs the model over the tokens that are not in the cache, and adds the next token to each
  // sample. Samples that end leave the batch.
  void Step();

 private:
  void ClearLengthDependent();
  // Returns [samples, S]: the last counts[b] tokens of sample b, then padding.
  at::Tensor NewTokens(const std::vector<std::int64_t>& counts) const;
  // Runs the model over the last counts[b] tokens of each sample b. Returns the logits after its
  // last token: fp32 [samples, vocabulary] on the CPU.
  at::Tensor RunModel(const std::vector<std::int64_t>& counts);
  // Chooses and adds the sample's next token. Returns whether the sample continues.
  bool AddToken(Live* sample, std::span<float> logits);

  const BlockList& model_;
  const models::DecoderSpec& spec_;
  const std::vector<Prompt>& prompts_;
  const GenerateOptions& options_;
  GenerationObserver& observer_;
  std::vector<Live> live_;
  models::KeyValueCache cache_;
};

models::KeyValueCache MakeCache(const BlockList& model, const models::DecoderSpec& spec,
                                const PromptBatch& batch) {
  std::int64_t most = 0;
  for (std::size_t i = batch.first; i < batch.first + batch.count; ++i) {
    const auto tokens = static_cast<std::int64_t>(batch.all[i].tokens.size());
    most = std::max(most, tokens + batch.all[i].most_new_tokens);
  }
  return models::KeyValueCache(
      spec, {.samples = static_cast<std::int64_t>(batch.count), .capacity = most},
      model.block(0).parameters().front().options().requires_grad(false));
}

Generation::Generation(const BlockList& model, const models::DecoderSpec& spec,
                       const PromptBatch& batch, const GenerateOptions& options,
                       GenerationObserver& observer)
    : model_(model),
      spec_(spec),
      prompts_(batch.all),
      options_(options),
      observer_(observer),
      cache_(MakeCache(model, spec, batch)) {
  for (std::size_t i = batch.first; i < batch.first + batch.count; ++i) {
    live_.push_back({.prompt = i, .tokens = prompts_[i].tokens});
  }
}

// Clears the cache if its keys were rotated with other frequencies than the new token needs; the
// model then runs over the full text again. The batch has one sample (Generate).
void Generation::ClearLengthDependent() {
  const std::int64_t seen = cache_.lengths().front();
  const auto length = static_cast<std::int64_t>(live_.front().tokens.size());
  const bool holds =
      models::HaveSameFrequencies(spec_.rope, seen, length) &&
      models::HaveSameFrequencies(spec_.windowed_rope.value_or(spec_.rope), seen, length);
  if (!holds) cache_.Clear();
}

at::Tensor Generation::NewTokens(const std::vector<std::int64_t>& counts) const {
  const std::int64_t width = *std::max_element(counts.begin(), counts.end());
  at::Tensor tokens = at::zeros({static_cast<std::int64_t>(counts.size()), width}, at::kLong);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::vector<std::int64_t> own(live_[i].tokens.end() - counts[i], live_[i].tokens.end());
    tokens[static_cast<std::int64_t>(i)].narrow(0, 0, counts[i]).copy_(at::tensor(own));
  }
  return tokens.to(cache_.positions().device());
}

at::Tensor Generation::RunModel(const std::vector<std::int64_t>& counts) {
  cache_.Extend(counts);
  Bundle bundle{.batch = {{"tokens", NewTokens(counts)}, {"positions", cache_.positions()}},
                .cache = &cache_};
  for (int i = 0; i + 1 < model_.size(); ++i) {
    bundle = model_.block(i).forward(std::move(bundle));
  }
  // The head computes logits for the last token of each sample only, not for the full prompt.
  std::vector<at::Tensor> last;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    last.push_back(bundle.hidden[static_cast<std::int64_t>(i)].narrow(0, counts[i] - 1, 1));
  }
  bundle.hidden = at::stack(last);
  bundle = model_.block(model_.size() - 1).forward(std::move(bundle));
  return bundle.extras.at("logits").squeeze(1).to(at::kCPU, at::kFloat).contiguous();
}

bool Generation::AddToken(Live* sample, std::span<float> logits) {
  const Prompt& prompt = prompts_[sample->prompt];
  const std::int64_t token = ChooseToken(
      logits, sample->tokens, options_.sampling,
      UniformAt(options_.seed, prompt.number, static_cast<std::uint64_t>(sample->new_tokens)));
  const auto& ends = options_.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    observer_.OnEnd(sample->prompt, Ending::kEndToken);
    return false;
  }
  sample->tokens.push_back(token);
  ++sample->new_tokens;
  observer_.OnToken(sample->prompt, token);
  if (sample->new_tokens < prompt.most_new_tokens) return true;
  observer_.OnEnd(sample->prompt, Ending::kLength);
  return false;
}

void Generation::Step() {
  if (FollowsLength(spec_)) ClearLengthDependent();
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    counts.push_back(static_cast<std::int64_t>(live_[i].tokens.size()) - cache_.lengths()[i]);
  }
  const at::Tensor logits = RunModel(counts);
  TORCH_CHECK(at::isfinite(logits).all().item<bool>(),
              "the model gives logits that are not finite, from which no token can be chosen: "
              "a weight is not finite, or a value overflows the model's dtype (see --dtype)");
  const auto vocabulary = static_cast<std::size_t>(logits.size(1));
  std::vector<Live> live;
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (!AddToken(&live_[i], {logits.data_ptr<float>() + i * vocabulary, vocabulary})) continue;
    kept.push_back(static_cast<std::int64_t>(i));
    live.push_back(std::move(live_[i]));
  }
  const bool fewer = live.size() < live_.size();
  live_ = std::move(live);
  if (fewer && !live_.empty()) cache_.Select(kept);
}

}  // namespace

void Generate(const BlockList& model, const models::DecoderSpec& spec,
              const std::vector<Prompt>& prompts, const GenerateOptions& options,
              GenerationObserver& observer) {
  if (prompts.empty()) return;
  const c10::NoGradGuard no_grad;
  // Such a cache is valid for one sample only.
  const std::size_t together = FollowsLength(spec) ? 1 : prompts.size();
  for (std::size_t first = 0; first < prompts.size() && observer.accepts_more();
       first += together) {
    Generation generation(model, spec, PromptBatch{prompts, first, together}, options, observer);
    while (!generation.done() && observer.accepts_more()) generation.Step();
  }
}

}  // namespace ds::inference
