#pragma once

// HostName returns the result of gethostname(2). Thread-safe.

#include <string>

namespace ds {

// Returns `otherwise` when the call fails.
std::string HostName(const std::string& otherwise = "");

}  // namespace ds
