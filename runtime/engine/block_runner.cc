#include "runtime/engine/block_runner.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/autocast_scope.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/zero/undeclared_reads.h"

namespace ds::engine {
namespace {

std::vector<at::Tensor*> ListDifferentiable(Bundle& bundle) {
  std::vector<at::Tensor*> tensors{&bundle.hidden, &bundle.loss};
  for (auto& [name, tensor] : bundle.extras) tensors.push_back(&tensor);
  return tensors;
}

// Replaces the memory of a block's buffers by copies; the destructor restores it. The autograd
// graph may have saved a buffer meanwhile, so the copy must not be written to afterwards.
class UnchangedBuffers {
 public:
  explicit UnchangedBuffers(const Block& block) : buffers_(block.buffers()) {
    for (at::Tensor& buffer : buffers_) {
      originals_.push_back(buffer.variable_data());
      buffer.set_data(buffer.clone());
    }
  }
  ~UnchangedBuffers() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].set_data(originals_[i]);
  }
  UnchangedBuffers(const UnchangedBuffers&) = delete;
  UnchangedBuffers& operator=(const UnchangedBuffers&) = delete;

 private:
  std::vector<at::Tensor> buffers_, originals_;
};

// Returns whether a parameter of the block needs a gradient.
bool TrainsParameters(const Block& block) {
  const std::vector<at::Tensor> parameters = block.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

// Takes the tensors that gradients flow through out of the bundle: hidden, loss and extras (in the
// order of their names). PutDifferentiable puts them, or as many tensors computed from them, back
// in the same order.
std::vector<at::Tensor> TakeDifferentiable(Bundle* bundle) {
  std::vector<at::Tensor> tensors;
  for (at::Tensor* slot : ListDifferentiable(*bundle)) tensors.push_back(std::move(*slot));
  return tensors;
}

void PutDifferentiable(std::vector<at::Tensor> tensors, Bundle* bundle) {
  const std::vector<at::Tensor*> slots = ListDifferentiable(*bundle);
  TORCH_CHECK(slots.size() == tensors.size(), "a bundle of ", slots.size(), " tensors got ",
              tensors.size());
  for (std::size_t i = 0; i < slots.size(); ++i) *slots[i] = std::move(tensors[i]);
}

// Runs the block and saves only its inputs, from which the backward pass recomputes it
// (autograd/recompute.h). The second run does not change the block's buffers, such as the running
// mean of a batch normalisation. The block must outlive the graph.
Bundle RecomputeBlock(Block& block, Bundle bundle, activation::RecomputeOptions options) {
  std::vector<at::Tensor> inputs = TakeDifferentiable(&bundle);
  const auto left = std::make_shared<Bundle>();  // the result of the block's first run
  // `rest` has the names of the tensors that gradients flow through, but not the tensors.
  const activation::RecomputedForward part =
      [&block, rest = std::move(bundle),
       first = std::weak_ptr<Bundle>(left)](activation::Tensors tensors) {
        const std::shared_ptr<Bundle> is_first = first.lock();
        std::optional<UnchangedBuffers> unchanged;
        if (!is_first) unchanged.emplace(block);
        Bundle result = rest;
        PutDifferentiable(std::move(tensors), &result);
        result = block.forward(std::move(result));
        activation::Tensors outputs = TakeDifferentiable(&result);
        if (is_first) *is_first = std::move(result);
        return outputs;
      };
  options.trains = TrainsParameters(block);
  PutDifferentiable(activation::Recompute(part, std::move(inputs), options), left.get());
  return std::move(*left);
}

Bundle LeaveBlock(zero::ShardedModel& sharded, int index, Bundle bundle) {
  std::vector<at::Tensor> tensors = TakeDifferentiable(&bundle);
  PutDifferentiable(sharded.LeaveForward(index, std::move(tensors)), &bundle);
  return bundle;
}

}  // namespace

activation::RecomputeOptions BlockRunner::MakeRecomputeOptions(int block) {
  const config::ActivationCheckpointingConfig& config = options_.checkpointing;
  activation::RecomputeOptions options{.keep_on_host = config.cpu_checkpointing,
                                       .synchronize = config.synchronize_checkpoint_boundary,
                                       .clock = options_.clock};
  if (config.profile) options.times = &recompute_times_[block];
  return options;
}

// Inputs of blocks are equal on all tensor ranks. Inputs of a block's parts, such as attention, are
// not.
activation::RecomputeOptions BlockRunner::MakeBlockOptions(const RankTopology& topology,
                                                           int block) {
  activation::RecomputeOptions options = MakeRecomputeOptions(block);
  if (options_.checkpointing.partition_activations) {
    options.split_among = FindTensorCommunicator(topology.mesh, *topology.world);
    if (saved_buffer_) options.buffer = &*saved_buffer_;
  }
  return options;
}

Bundle BlockRunner::RunBlock(const BlockList& blocks, const RankTopology& topology, int index,
                             Bundle bundle) {
  Block& block = blocks.block(index);
  if (options_.mlp_tiles > 1) {
    bundle.mlp_tiles = {.count = options_.mlp_tiles, .recompute = MakeRecomputeOptions(index)};
    bundle.mlp_tiles.recompute.trains = TrainsParameters(block);
  }
  bundle.keeper = &options_.keeper;
  if (config::IsRecomputed(options_.recompute, blocks.index_in_model(index), blocks.model_size())) {
    return RecomputeBlock(block, std::move(bundle), MakeBlockOptions(topology, index));
  }
  if (options_.recompute.kind == config::RecomputeChoice::Kind::kAttention) {
    bundle.recompute_attention = MakeRecomputeOptions(index);
  }
  return block.forward(std::move(bundle));
}

// Adds the parameters read without declaration to the error: LibTorch only reports an operator
// without storage.
Bundle BlockRunner::RunBlockWatched(TrainedModel& model, const RankTopology& topology, int index,
                                    Bundle bundle) {
  if (!model.sharded->context().sharding.parameters) {
    return RunBlock(*model.blocks, topology, index, std::move(bundle));
  }
  const zero::UndeclaredReads reads(*model.sharded, index);
  const auto check = [&] {
    const std::string found = reads.Describe();
    TORCH_CHECK(found.empty(), found);
  };
  try {
    bundle = RunBlock(*model.blocks, topology, index, std::move(bundle));
  } catch (const c10::Error&) {
    check();
    throw;
  }
  check();
  return bundle;
}

Bundle BlockRunner::RunChunk(TrainedModel& model, const RankTopology& topology, Bundle bundle,
                             int chunk) {
  TORCH_CHECK(model.blocks != nullptr,
              "the engine was created from a UnitList, which its caller runs: see UnitPasses");
  zero::ShardedModel& sharded = *model.sharded;
  const auto& buffered = options_.checkpointing.buffered_parts;
  if (c10::GradMode::is_enabled() && buffered) saved_buffer_.emplace(*buffered);
  const precision::AutocastScope autocast(sharded.context().dtypes.autocast,
                                          sharded.context().device);
  const models::BlockRange blocks = model.blocks->chunk(chunk);
  sharded.BeginForward(zero::UnitRange{blocks.first, blocks.end});
  for (int i = blocks.first; i < blocks.end; ++i) {
    sharded.Enter(i);
    bundle.random.block = model.blocks->index_in_model(i);
    bundle = reads_are_declared_ ? RunBlock(*model.blocks, topology, i, std::move(bundle))
                                 : RunBlockWatched(model, topology, i, std::move(bundle));
    bundle = LeaveBlock(sharded, i, std::move(bundle));
  }
  sharded.EndForward();
  saved_buffer_.reset();
  if (blocks.end == model.blocks->size()) reads_are_declared_ = true;
  return bundle;
}

}  // namespace ds::engine
