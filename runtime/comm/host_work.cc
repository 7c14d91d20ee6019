#include "runtime/comm/host_work.h"

#include <c10/util/Exception.h>

#include <utility>

namespace ds::comm {

HostWork::HostWork(int rank, c10d::OpType op, std::vector<at::Tensor> changed)
    : c10d::Work(rank, op),
      changed_(std::move(changed)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

void HostWork::Finish(const Status& status) {
  if (status.ok()) {
    finish();
    future_->markCompleted(c10::IValue(changed_));
    return;
  }
  const std::exception_ptr error = ToException(status);
  finish(error);
  future_->setError(error);
}

std::exception_ptr ToException(const Status& status) {
  const c10::SourceLocation here = {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)};
  if (status.code() == StatusCode::kUnavailable) {
    return std::make_exception_ptr(c10::DistNetworkError(here, status.message()));
  }
  return std::make_exception_ptr(c10::DistBackendError(here, status.message()));
}

}  // namespace ds::comm
