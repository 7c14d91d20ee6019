#pragma once

// FamilyBlock is the base class of the blocks of the built-in model families (GPT-2, Llama, ...).
// It describes the initial values and the placement of parameters.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/initialize.h"

namespace ds::models {

// A block of a built-in model family, initialised by `init`.
class FamilyBlock : public Block {
 public:
  // `slice` describes how tensor ranks shard the decoder; without a plan, parameters are unsharded.
  FamilyBlock(std::string prefix, NormalInit init, DecoderSlice slice = {})
      : Block(std::move(prefix)), init_(std::move(init)), slice_(std::move(slice)) {}
  FirstValue DescribeFirstValue(const std::string& name, std::int64_t dimensions) const override;
  checkpoint::Placement DescribePlacement(const std::string& name,
                                          const at::Tensor& tensor) const override {
    if (!slice_.plan) return Block::DescribePlacement(name, tensor);
    return slice_.PlacementOf(FullName(name), tensor.sizes().vec());
  }

 private:
  NormalInit init_;
  DecoderSlice slice_;
};

}  // namespace ds::models
