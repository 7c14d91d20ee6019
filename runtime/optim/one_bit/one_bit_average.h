#pragma once

// OneBitAverage computes the compressed mean over ranks (comm/compressed_all_reduce.h) of an
// optimizer's tensors.
//
// In fp32 each parameter has its own scale. With fp32 masters of 16-bit parameters, all parameters
// of a parameter group share one scale, as in DeepSpeed: its FP16_Optimizer makes one tensor of a
// group.
//
// Memory: the compression errors, from the first call on; during a call in 16 bit, 4 bytes an
// element.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "runtime/comm/compressed_all_reduce.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

class OneBitAverage {
 public:
  // Replaces each of `views` by its mean over ranks. views[i] has the layout of slice i's views.
  // Pass the same slices in every call. Collective.
  void Take(const RankSlices& all, const std::vector<at::Tensor>& views);

  // The next call starts without errors, like the first one.
  void ForgetErrors() {
    if (compressed_) compressed_->ForgetErrors();
  }

 private:
  std::optional<comm::CompressedAllReduce> compressed_;
};

}  // namespace ds::optim
