#pragma once

// Random initial values of parameters. They depend only on (seed, parameter name, element), not on
// the order in which parameters are filled, the rank, the device, the number of threads, or the
// size of the range that is filled at once.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Elements [first, first + values.numel()) of a parameter. `values` is the destination: flat, of
// any floating dtype, on any device.
struct ElementRange {
  std::int64_t first = 0;
  at::Tensor values;
};

// Fills a range of the parameter with this full name. Computes in fp32 on the CPU and rounds to the
// range's dtype, so that bf16 and fp32 runs start from the same weights.
void FillRange(const std::string& name, const FirstValue& described, std::uint64_t seed,
               const ElementRange& range);

// The initialisation of the built-in model families: matrices from normal(0, std), biases zero,
// other vectors (norms) vector_mean.
struct NormalInit {
  double std = 0.02;
  double vector_mean = 1.0;
  double residual_std = 0.02;
  std::vector<std::string> residual_names;  // name suffixes of parameters that use residual_std

  FirstValue Describe(const std::string& name, std::int64_t dimensions) const;
};

// Returns the initialisation that transformers uses for this decoder.
NormalInit DescribeInit(const DecoderSpec& spec);

// A block of a built-in model family, initialised by `init`.
class FamilyBlock : public Block {
 public:
  // `slice` describes how the block's decoder is sharded; empty for other blocks.
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
