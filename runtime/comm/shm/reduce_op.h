#pragma once

// What a reduction does with the ranks' values.

#include <string_view>

namespace ds::comm {

enum class ReduceOp {
  kSum,
  kAvg,  // the sum divided by the number of ranks; floating point only
  kMax,
  kMin,
  kProduct,
};

// "sum", "avg", "max", "min", "product".
std::string_view ReduceOpName(ReduceOp op);

}  // namespace ds::comm
