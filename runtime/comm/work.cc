#include "runtime/comm/work.h"

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace ds::comm {

Work::Work(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
Work::Work(const Work&) = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(const Work&) = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

void Work::wait() {
  if (work_) work_->wait();
}
bool Work::done() const { return !work_ || work_->isCompleted(); }

Status Work::error() const {
  const std::exception_ptr error = work_ ? work_->exception() : nullptr;
  if (error == nullptr) return OkStatus();
  try {
    std::rethrow_exception(error);
  } catch (const c10::DistNetworkError& e) {
    return UnavailableError(e.what_without_backtrace());
  } catch (const c10::Error& e) {
    return InternalError(e.what_without_backtrace());
  } catch (const std::exception& e) {
    return InternalError(e.what());
  }
}

}  // namespace ds::comm
