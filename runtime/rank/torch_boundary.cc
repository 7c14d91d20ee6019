#include "runtime/rank/torch_boundary.h"

#include <c10/util/Exception.h>

namespace ds::rank {

Status StatusOfException(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    const std::string message = torch_error->what_without_backtrace();
    if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
      return ResourceExhaustedError(message);
    }
    if (dynamic_cast<const c10::DistNetworkError*>(&error) != nullptr) {
      return UnavailableError(message);
    }
    return InternalError(message);
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return ResourceExhaustedError("out of memory");
  }
  return InternalError(error.what());
}

}  // namespace ds::rank
