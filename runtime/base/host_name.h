#pragma once

// HostName: what gethostname(2) says. Safe from any thread.

#include <string>

namespace ds {

// Returns `otherwise` where the kernel does not say it.
std::string HostName(const std::string& otherwise = "");

}  // namespace ds
