#pragma once

// Status and StatusOr report every failure that can happen in ordinary use.
//
// A function that can fail for reasons outside the program (input, disk, network, a dead peer)
// returns Status or StatusOr<T>. Failures that only a bug can cause use DS_CHECK (check.h). Only
// libraries throw exceptions. Their callers convert the expected ones to a Status;
// rank/torch_boundary.h converts all others.
//
// A message states the failure, its location (file, line, host, rank, key), and the remedy.
//
// The codes equal gRPC's numerically, so a Status crosses the wire without a table. A Status is a
// value, as thread-safe as a std::string.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/check.h"

namespace ds {

enum class StatusCode : std::int32_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// Returns the code's name for users: "invalid argument", "not found".
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  // Requires code != kOk (an error has a reason; an OK has none).
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {
    DS_CHECK(code != StatusCode::kOk);
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // Returns the same error with `context` and ": " in front of its message; OK stays OK.
  Status WithContext(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
Status InvalidArgumentError(std::string message);
Status NotFoundError(std::string message);
Status AlreadyExistsError(std::string message);
Status PermissionDeniedError(std::string message);
Status ResourceExhaustedError(std::string message);
Status FailedPreconditionError(std::string message);
Status OutOfRangeError(std::string message);
Status UnimplementedError(std::string message);
Status InternalError(std::string message);
Status UnavailableError(std::string message);
Status DeadlineExceededError(std::string message);
Status CancelledError(std::string message);
Status DataLossError(std::string message);

// Converts an errno to a Status: "`what`: No space left on device". No other function does.
Status ErrnoError(int error_number, std::string_view what);

// Holds a value, or the reason why there is none.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-*)
  StatusOr(Status status) : status_(std::move(status)) { DS_CHECK(!status_.ok()); }  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Requires ok().
  const T& value() const& { return (DS_CHECK_MSG(ok(), status_.message()), *value_); }
  T& value() & { return (DS_CHECK_MSG(ok(), status_.message()), *value_); }
  T&& value() && { return (DS_CHECK_MSG(ok(), status_.message()), *std::move(value_)); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace ds

#define DS_STATUS_CONCAT_INNER(a, b) a##b
#define DS_STATUS_CONCAT(a, b) DS_STATUS_CONCAT_INNER(a, b)

// Returns the Status of `expression` from the enclosing function unless it is OK.
#define DS_RETURN_IF_ERROR(expression)                                               \
  do {                                                                               \
    if (::ds::Status ds_status_ = (expression); !ds_status_.ok()) return ds_status_; \
  } while (false)

// DS_ASSIGN_OR_RETURN(auto x, F()): x becomes the value, or the error is returned.
#define DS_ASSIGN_OR_RETURN(declaration, expression) \
  DS_ASSIGN_OR_RETURN_IMPL(DS_STATUS_CONCAT(ds_status_or_, __LINE__), declaration, expression)
#define DS_ASSIGN_OR_RETURN_IMPL(temporary, declaration, expression) \
  auto temporary = (expression);                                     \
  if (!temporary.ok()) return temporary.status();                    \
  declaration = std::move(temporary).value()
