#pragma once

// Random first values that depend on (seed, parameter name, element) alone: not on the order in
// which parameters are filled, the rank, the device, the number of threads, or how much of a
// parameter is filled at once.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Elements [first, first + values.numel()) of a parameter, which `values` is to hold: flat, of any
// floating dtype, on any device.
struct ElementRange {
  std::int64_t first = 0;
  at::Tensor values;
};

// Fills a range of the parameter with this full name. Values are computed in fp32 on the CPU and
// rounded to the range's dtype, so that bf16 and fp32 runs start from the same weights.
void FillRange(const std::string& name, const FirstValue& described, std::uint64_t seed,
               const ElementRange& range);

// The scheme of the known families: matrices from normal(0, std), biases at zero, other vectors
// (norms) at vector_mean.
struct NormalInit {
  double std = 0.02;
  double vector_mean = 1.0;
  double residual_std = 0.02;
  std::vector<std::string> residual_names;  // parameters whose names end so have residual_std

  FirstValue Describe(const std::string& name, std::int64_t dimensions) const;
};

// The scheme of a decoder, as transformers starts it.
NormalInit DescribeInit(const DecoderSpec& spec);

// A block of a known family: starts as `init` says.
class FamilyBlock : public Block {
 public:
  // `slice`: of a decoder's block.
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
