#pragma once

// DS_CHECK asserts a condition that only a bug can make false. On failure it prints the file, the
// line and the condition, then aborts. Report bad input with a Status instead.

#include <string_view>

namespace ds {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace ds

#define DS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::ds::CheckFailed(__FILE__, __LINE__, #condition, ""))
#define DS_CHECK_MSG(condition, message) \
  ((condition) ? static_cast<void>(0) : ::ds::CheckFailed(__FILE__, __LINE__, #condition, message))
