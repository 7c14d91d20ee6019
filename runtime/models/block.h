#pragma once

// A model is a list of blocks: embedding, transformer layers, head. The list is what ZeRO-3 gathers
// by, what recompute wraps and what a pipeline cuts; a user's own model is the same list.
//
// Parameters are created without memory (UnmaterialisedParameter). Whoever owns the memory (ZeRO,
// or AllocateParameters below) gives each block its bytes before the block's weights are loaded or
// initialised and before its forward runs.
//
// Threads: a block belongs to one rank; nothing here is shared between threads.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/activation/recompute.h"
#include "runtime/checkpoint/placement.h"
#include "runtime/models/batch.h"
#include "runtime/models/dropout.h"
#include "runtime/models/tiled_rows.h"

namespace ds::models {

// The tensors that flow from block to block. B samples of S tokens, H the model's width.
struct Bundle {
  Batch batch;
  at::Tensor hidden;  // [B, S, H], set by every block but the last
  at::Tensor loss;    // scalar fp32, a mean; set by the last block when there are labels
  // The number of labels that mean is over, set with it: a step's loss is its sums (loss times
  // count) over its counts, whatever shapes its micro-batches have. Absent: the mean of the losses.
  std::optional<double> loss_count;
  std::map<std::string, at::Tensor> extras;  // a model's own tensors, by name
  // Backward will multiply the loss by loss_scale, and by loss_count over loss_unit: for a block
  // that computes gradients in its forward pass, which in fp16 would vanish without it.
  double loss_scale = 1.0;
  double loss_unit = 1.0;
  RandomPlace random;  // of these samples, among all draws; the engine sets it before every block
  std::optional<activation::RecomputeOptions> recompute_attention;  // AttentionOptions::recompute
  RowTiles mlp_tiles;                                               // of feed-forward parts
  class KeyValueCache* cache = nullptr;  // of tokens before these (key_value_cache.h); null: none

  // A tensor of the batch; undefined where there is none of the name.
  const at::Tensor& tensor(std::string_view name) const { return FindTensor(batch, name); }
};

// Describes a parameter before training: normal(mean, std), each drawn for itself, zeros in a part.
struct FirstValue {
  double mean = 0.0, std = 0.0;
  struct Zeros {
    std::int64_t first = 0, count = 0;  // elements
  };
  Zeros zeros = {};
};

// Invariant: behind a block's prefix its parameters' names are the Hugging Face names (FullName).
class Block : public torch::nn::Module {
 public:
  // `prefix` is "transformer.h.0", "model.layers.0", or "" where parameters' names are complete.
  explicit Block(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes the bundle of the block before, returns the one for the next.
  virtual Bundle forward(Bundle bundle) = 0;

  // Tells whether the backward pass reads the bytes of parameters, the block's own or those that it
  // also reads; else ZeRO does not gather them for it. Of a block that is computed again nobody
  // asks.
  virtual bool backward_reads_parameters() const { return true; }

  // Says how a parameter (named as inside the block) starts. Here: normal(0, 0.02) for matrices,
  // zeros for names ending in "bias", ones for other vectors.
  virtual FirstValue DescribeFirstValue(const std::string& name, std::int64_t dimensions) const;

  // Says what a parameter's tensor is of one that tensor ranks hold together. Here: all of it.
  virtual checkpoint::Placement DescribePlacement(const std::string& name,
                                                  const at::Tensor& tensor) const;

  // Fills every parameter with its first values, functions of (seed, full name, element) alone.
  void Initialize(std::uint64_t seed);
  // Fills elements [first, first + values.numel()) of a parameter's tensor, flat: `values`.
  void InitializeRange(const std::string& full_name, std::uint64_t seed, std::int64_t first,
                       const at::Tensor& values) const;

  const std::string& prefix() const { return prefix_; }
  std::string FullName(const std::string& name) const {
    return prefix_.empty() ? name : prefix_ + "." + name;
  }

 private:
  std::string prefix_;
};

using BlockFactory = std::function<std::shared_ptr<Block>()>;  // makes a new one each time

// The model: blocks in the order they run.
class BlockList {
 public:
  virtual ~BlockList() = default;

  // `also_reads` names earlier blocks (by index) whose parameters this block's forward reads: a
  // tied head reads the embedding. Those must be present while this block runs, and receive
  // gradients from it.
  void Add(std::shared_ptr<Block> block, std::vector<int> also_reads = {});
  // The same for blocks whose modules make values, as LibTorch's do, in a model larger than a
  // rank's memory: they are dropped at once, and the engine calls `make` again when it wants them,
  // so that one block is there whole, beside the buffer that it goes into.
  void Add(BlockFactory make, std::vector<int> also_reads = {});

  int size() const { return static_cast<int>(blocks_.size()); }
  Block& block(int i) const { return *blocks_.at(static_cast<std::size_t>(i)); }
  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }
  // Empty for a block that was added as it is.
  const BlockFactory& factory(int i) const { return factories_.at(static_cast<std::size_t>(i)); }
  const std::vector<int>& also_reads(int i) const {
    return also_reads_.at(static_cast<std::size_t>(i));
  }
  // Sets training or evaluation mode (dropout) in every block.
  void train(bool on);

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
  std::vector<BlockFactory> factories_;
  std::vector<std::vector<int>> also_reads_;
};

// A parameter with shape, dtype, device and requires_grad, and a storage of 0 bytes.
at::Tensor UnmaterialisedParameter(at::IntArrayRef shape, const at::TensorOptions& options);

// Gives every parameter of `block` memory of its own (uninitialised), where no engine does it.
void AllocateParameters(Block& block);

// Runs every block in order. Requires every block to be materialised.
Bundle RunBlocks(const BlockList& model, Bundle bundle);

}  // namespace ds::models

namespace ds {
using models::Batch;
using models::Block;
using models::BlockList;
using models::Bundle;
using models::RandomPlace;
}  // namespace ds
