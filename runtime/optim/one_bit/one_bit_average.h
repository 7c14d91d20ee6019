#pragma once

// OneBitAverage: the compressed mean over ranks (comm/compressed_all_reduce.h) of what an optimizer
// keeps beside its parameters.
//
// In fp32 each parameter has its own scale. Where there are fp32 masters of 16-bit parameters, all
// parameters of a parameter group share one, as in DeepSpeed, whose FP16_Optimizer makes one tensor
// of a group.
//
// Memory: the errors of the compression, from the first call on; during a call in 16 bit, 4 bytes
// an element.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "runtime/comm/compressed_all_reduce.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

class OneBitAverage {
 public:
  // views[i] lies as the views of part i do; all become the mean of their ranks'. In every call the
  // same parts. Collective.
  void Take(const RankParts& all, const std::vector<at::Tensor>& views);

  // The next call starts without errors, as the first one does.
  void ForgetErrors() {
    if (compressed_) compressed_->ForgetErrors();
  }

 private:
  std::optional<comm::CompressedAllReduce> compressed_;
};

}  // namespace ds::optim
