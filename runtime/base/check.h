#pragma once

// DS_CHECK: for what only a bug can make false. Prints file, line and condition, then aborts.
// Bad input is never checked with this; it gets a Status.

#include <string_view>

namespace ds {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace ds

#define DS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::ds::CheckFailed(__FILE__, __LINE__, #condition, ""))
#define DS_CHECK_MSG(condition, message) \
  ((condition) ? static_cast<void>(0) : ::ds::CheckFailed(__FILE__, __LINE__, #condition, message))
