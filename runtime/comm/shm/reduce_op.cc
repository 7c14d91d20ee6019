#include "runtime/comm/shm/reduce_op.h"

#include "runtime/base/check.h"

namespace ds::comm {

std::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProduct:
      return "product";
  }
  DS_CHECK_MSG(false, "unknown reduction");
}

}  // namespace ds::comm
