#pragma once

// DS_CHECK asserts a condition that only a bug can make false. On failure it prints the file, the
// line and the condition, then aborts, unless the process asked for an exception. Report bad input
// with a Status instead.

#include <stdexcept>
#include <string_view>

namespace ds {

// A failed check. what() is the line that would be printed.
class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Makes failed checks throw CheckError instead of aborting, or abort again. Call it where the
// process belongs to another program, such as a Python interpreter, which shows the exception with
// a stack trace. A check that fails in a destructor or in a thread without a handler still ends the
// process. Thread-safe.
void ThrowOnFailedCheck(bool throws);

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace ds

#define DS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::ds::CheckFailed(__FILE__, __LINE__, #condition, ""))
#define DS_CHECK_MSG(condition, message) \
  ((condition) ? static_cast<void>(0) : ::ds::CheckFailed(__FILE__, __LINE__, #condition, message))
