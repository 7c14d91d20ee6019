#pragma once

// AtTorchBoundary: converts exceptions of LibTorch and collectives in a job to Status. Code above
// it uses only Status. Code below it that catches an exception has a comment on the exception that
// its caller can handle.

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "runtime/base/status.h"

namespace ds::rank {

// Converts an exception of LibTorch or our collectives to a Status. For a c10::Error it uses the
// message without the C++ backtrace.
Status StatusOfException(const std::exception& error);
// Returns whether the status comes from an exception of a failed memory allocation.
bool IsOutOfMemory(const Status& status);

// Runs `body` (a callable that returns Status) and converts an exception to a Status.
template <typename Body>
Status AtTorchBoundary(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    return StatusOfException(error);
  }
}

}  // namespace ds::rank
