#pragma once

// Block, BlockList: a model is a list of blocks (embedding, transformer layers, head). ZeRO-3
// gathers, recomputation wraps and a pipeline splits the model by block. A user's own model is a
// list of blocks, too.
//
// Parameters are created without memory (UnmaterialisedParameter). The owner of the memory (ZeRO,
// or AllocateParameters below) must materialise a block before its weights are loaded or
// initialised and before its forward runs.
//
// Threads: a block belongs to one rank; nothing here is shared between threads.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/placement.h"
#include "runtime/models/bundle.h"
#include "runtime/models/initialize.h"

namespace ds::models {

// The blocks [first, end).
struct BlockRange {
  int first = 0, end = 0;

  int size() const { return end - first; }
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

// The blocks that a pipeline stage holds of a model of `all` blocks: one run, or one run for each
// of its virtual stages, in model order.
struct StageBlocks {
  int stage = 0, stages = 1;
  std::vector<BlockRange> chunks = {};
  int all = 0;

  friend bool operator==(const StageBlocks&, const StageBlocks&) = default;
};

// Invariant: the prefix and a parameter's name form its Hugging Face name (FullName).
class Block : public torch::nn::Module {
 public:
  // `prefix` is "transformer.h.0", "model.layers.0", or "" if parameter names are already complete.
  explicit Block(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes the previous block's bundle and returns the bundle for the next block.
  virtual Bundle forward(Bundle bundle) = 0;

  // Returns whether the backward pass reads the values of parameters: the block's own, or the ones
  // listed in also_reads. If false, ZeRO does not gather them for the backward pass. Not used for a
  // block that is recomputed.
  virtual bool backward_reads_parameters() const { return true; }

  // Returns the initial distribution of a parameter; `name` is relative to the block. Default:
  // normal(0, 0.02) for matrices, zeros for names ending in "bias", ones for other vectors.
  virtual FirstValue DescribeFirstValue(const std::string& name, std::int64_t dimensions) const;

  // Returns which part of the global parameter the local `tensor` is, for parameters that tensor
  // ranks shard. Default: all of it.
  virtual checkpoint::Placement DescribePlacement(const std::string& name,
                                                  const at::Tensor& tensor) const;

  // Fills every parameter with its initial values, which depend only on (seed, full name, element).
  void Initialize(std::uint64_t seed);
  // Fills `values` (flat) with elements [first, first + values.numel()) of the parameter's tensor.
  void InitializeRange(const std::string& full_name, std::uint64_t seed, std::int64_t first,
                       const at::Tensor& values) const;

  const std::string& prefix() const { return prefix_; }
  std::string FullName(const std::string& name) const {
    return prefix_.empty() ? name : prefix_ + "." + name;
  }

 private:
  std::string prefix_;
};

using BlockFactory = std::function<std::shared_ptr<Block>()>;  // creates a new block on each call

// The model, or a pipeline stage's part of it: blocks in execution order.
class BlockList {
 public:
  virtual ~BlockList() = default;

  // Appends a block. `also_reads` lists earlier blocks (by index) with parameters that this block's
  // forward reads: a tied head reads the embedding. Those parameters must be present while this
  // block runs, and they receive gradients from it.
  void Add(std::shared_ptr<Block> block, std::vector<int> also_reads = {});
  // Appends a block with modules that allocate their parameters, as LibTorch's own modules do. Use
  // this overload for a model larger than a rank's memory: the values are dropped at once, and the
  // engine calls `make` again when it needs them. At most one full block then exists, in addition
  // to the buffer that it is copied into.
  void Add(BlockFactory make, std::vector<int> also_reads = {});

  // Makes this list a pipeline stage's part: its blocks are the blocks of all chunks, concatenated.
  void SetPart(const StageBlocks& part) { part_ = part; }
  const std::optional<StageBlocks>& part() const { return part_; }
  // The index of block i in the full model, and the number of blocks of the full model.
  int index_in_model(int i) const;
  int model_size() const { return part_ ? part_->all : size(); }
  // The runs of consecutive blocks in this list: one, or one for each chunk (virtual stage) of a
  // pipeline stage.
  int chunk_count() const { return part_ ? static_cast<int>(part_->chunks.size()) : 1; }
  BlockRange chunk(int number) const;

  int size() const { return static_cast<int>(blocks_.size()); }
  Block& block(int i) const { return *blocks_.at(static_cast<std::size_t>(i)); }
  const std::vector<std::shared_ptr<Block>>& blocks() const { return blocks_; }
  // Empty if the block was added as an object.
  const BlockFactory& factory(int i) const { return factories_.at(static_cast<std::size_t>(i)); }
  const std::vector<int>& also_reads(int i) const {
    return also_reads_.at(static_cast<std::size_t>(i));
  }
  // Sets training or evaluation mode (dropout) for every block.
  void train(bool on);

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
  std::vector<BlockFactory> factories_;
  std::vector<std::vector<int>> also_reads_;
  std::optional<StageBlocks> part_;  // none: the full model
};

// Returns a parameter with shape, dtype, device and requires_grad, but a storage of 0 bytes. A
// parameter that is not trained may have dtype kByte.
at::Tensor UnmaterialisedParameter(at::IntArrayRef shape, const at::TensorOptions& options,
                                   bool trained = true);

// Allocates uninitialised memory for every parameter of `block`. For use without an engine.
void AllocateParameters(Block& block);

// Runs all blocks in order. Requires that every block is materialised.
Bundle RunBlocks(const BlockList& model, Bundle bundle);

}  // namespace ds::models

namespace ds {
using models::Batch;
using models::Block;
using models::BlockList;
using models::Bundle;
using models::RandomPosition;
}  // namespace ds
