#pragma once

// Where LibTorch's exceptions end and become Status: the only try-catch of the runtime.

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "runtime/base/status.h"

namespace ds::rank {

// The Status of an exception on its way out of LibTorch or our collectives. For a c10::Error the
// message without its C++ backtrace.
Status StatusOfException(const std::exception& error);

// Runs `body` (a callable that returns Status) and turns an exception into a Status.
template <typename Body>
Status AtTorchBoundary(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    return StatusOfException(error);
  }
}

}  // namespace ds::rank
