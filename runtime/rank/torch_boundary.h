#pragma once

// AtTorchBoundary: the end of the exceptions that LibTorch and collectives throw in a job; above it
// everything is a Status. What catches below it says at its place which exception its caller can
// answer.

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "runtime/base/status.h"

namespace ds::rank {

// The Status of an exception on its way out of LibTorch or our collectives. For a c10::Error the
// message without its C++ backtrace.
Status StatusOfException(const std::exception& error);
// Tells whether that exception was one of memory that could not be had.
bool IsOutOfMemory(const Status& status);

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
