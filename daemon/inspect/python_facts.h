#pragma once

// DescribePython runs a Python interpreter of this host to find out its version and the version of
// PyTorch in its environment. It does not import PyTorch, because that takes seconds.
//
// Thread-safe. Blocks for the start of an interpreter: about 20 ms, and up to a minute if it comes
// from a cold file server, with what its environment imports at the start.

#include <chrono>
#include <string>
#include <vector>

#include "proto/dsrun.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

// The time that suits every interpreter that is well.
inline constexpr std::chrono::seconds kPythonTimeout{30};

// Runs request.program() with the environment of the ranks: `environment`, the daemon's own
// ("NAME=value"), overridden by that of the request. The result names the problem of an interpreter
// that is missing, that fails, or that does not answer within `time_limit`.
v1::Python DescribePython(const v1::PrepareRequest& request,
                          const std::vector<std::string>& environment,
                          std::chrono::nanoseconds time_limit = kPythonTimeout);

}  // namespace ds::daemon
