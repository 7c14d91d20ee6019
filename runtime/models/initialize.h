#pragma once

// Random initial values of parameters. They depend only on (seed, parameter name, element), not on
// the order in which parameters are filled, the rank, the device, the number of threads, or the
// size of the range that is filled at once.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// Initial values of a parameter: independent draws from normal(mean, std), except for a range of
// zeros.
struct FirstValue {
  double mean = 0.0, std = 0.0;
  struct Zeros {
    std::int64_t first = 0, count = 0;  // elements: the row of a table's padding token
  };
  Zeros zeros = {};
};

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

}  // namespace ds::models
