#pragma once

// DescribePython runs a Python interpreter of this host to find out its version and the version of
// PyTorch in its environment. It does not import PyTorch, because that takes seconds.
//
// Thread-safe. Blocks for the start of an interpreter: about 20 ms, seconds on a cold file system,
// and at most kPythonTimeout.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "proto/dsrun.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

inline constexpr std::chrono::seconds kPythonTimeout{5};

// Runs request.program() with the environment of the ranks: `environment`, the daemon's own
// ("NAME=value"), overridden by that of the request. Returns none if there is no such interpreter,
// or if it fails or does not answer in time.
std::optional<v1::Python> DescribePython(const v1::PrepareRequest& request,
                                         const std::vector<std::string>& environment);

}  // namespace ds::daemon
