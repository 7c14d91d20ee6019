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
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/placement.h"
#include "runtime/models/bundle.h"
#include "runtime/models/stage_blocks.h"

namespace ds::models {

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

// The model, or a stage's part of it: blocks in the order they run.
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

  // Makes this list a stage's part: its blocks are those of the chunks, one behind the other.
  void SetPart(const StagePart& part) { part_ = part; }
  const std::optional<StagePart>& part() const { return part_; }
  // The place of block i in the whole model, and how many blocks that has.
  int index_in_model(int i) const;
  int model_size() const { return part_ ? part_->all : size(); }
  // The runs of blocks that are computed one after the other, of this list's: one, or a stage's
  // chunks.
  int chunk_count() const { return part_ ? static_cast<int>(part_->chunks.size()) : 1; }
  BlockRange chunk(int number) const;

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
  std::optional<StagePart> part_;  // none: the whole model
};

// A parameter with shape, dtype, device and requires_grad, and a storage of 0 bytes. One that is
// not trained may be of kByte.
at::Tensor UnmaterialisedParameter(at::IntArrayRef shape, const at::TensorOptions& options,
                                   bool trained = true);

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
