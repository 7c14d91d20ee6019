#pragma once

// AtTorchBoundary: the end of the exceptions that LibTorch and collectives throw in a job; above it
// everything is a Status. Below it only four places catch, each an exception that its caller can
// answer: connecting the ranks (comm/connect_world.cc), a collective on a thread of its own
// (comm/shm/call_queue.cc), and JSON that somebody else has written (models/model_config.cc,
// optim/one_bit).

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
