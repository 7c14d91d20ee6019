#include "runtime/rank/torch_boundary.h"

#include <c10/util/Exception.h>

#include <string_view>

namespace ds::rank {

namespace {

constexpr std::string_view kOutOfMemory = "out of memory";

// Returns the message of LibTorch's CPU allocator in an error, or "". The error's type does not
// identify it.
std::string FindRefusedAllocation(const std::string& message) {
  const std::size_t start = message.find("DefaultCPUAllocator: can't allocate memory");
  return start == std::string::npos ? "" : message.substr(start);
}

}  // namespace

bool IsOutOfMemory(const Status& status) { return status.message().starts_with(kOutOfMemory); }

Status StatusOfException(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    const std::string message = torch_error->what_without_backtrace();
    const bool on_device = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
    const std::string refused = on_device ? message : FindRefusedAllocation(message);
    if (!refused.empty()) return ResourceExhaustedError(std::string(kOutOfMemory) + ": " + refused);
    if (dynamic_cast<const c10::DistNetworkError*>(&error) != nullptr) {
      return UnavailableError(message);
    }
    return InternalError(message);
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return ResourceExhaustedError(std::string(kOutOfMemory));
  }
  return InternalError(error.what());
}

}  // namespace ds::rank
