#pragma once

// What a reduction does with the ranks' values.

#include <cstdint>
#include <string_view>

namespace ds::comm {

enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,  // the sum divided by the number of ranks; floating point only
  kMax,
  kMin,
  kProduct,
};

// "sum", "avg", "max", "min", "product".
std::string_view ReduceOpName(ReduceOp op);

}  // namespace ds::comm
