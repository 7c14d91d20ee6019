#pragma once

// HostWork: the c10d::Work of a call on the host backend. wait() throws what the call has failed
// with; the future has the tensors that the call has changed. Threads: any.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "runtime/base/status.h"

namespace ds::comm {

class HostWork : public c10d::Work {
 public:
  HostWork(int rank, c10d::OpType op, std::vector<at::Tensor> changed);

  // Once, when the call has ended.
  void Finish(const Status& status);

  std::vector<at::Tensor> result() override { return changed_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<at::Tensor> changed_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// The one place where the core's Status becomes LibTorch's exception. Requires: it is an error.
std::exception_ptr ToException(const Status& status);

}  // namespace ds::comm
