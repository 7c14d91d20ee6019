#pragma once

// Outcome and Result are Status and StatusOr with an error type of your own. Such an error holds
// more than a code and a message: its kind, its cause, and the user's options.
//
//     Outcome<HostFailure> Authenticate();
//     Result<Facts, HostFailure> AskForFacts();
//
// Values; not synchronised.

#include <optional>
#include <utility>
#include <variant>

#include "runtime/base/check.h"

namespace ds {

template <typename Failure>
class [[nodiscard]] Outcome {
 public:
  Outcome() = default;                                        // success
  Outcome(Failure failure) : failure_(std::move(failure)) {}  // NOLINT(google-explicit-*)

  bool ok() const { return !failure_.has_value(); }
  // Requires !ok().
  const Failure& failure() const { return (DS_CHECK(!ok()), *failure_); }

 private:
  std::optional<Failure> failure_;
};

template <typename T, typename Failure>
class [[nodiscard]] Result {
 public:
  Result(T value) : either_(std::in_place_index<0>, std::move(value)) {}            // NOLINT
  Result(Failure failure) : either_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT

  bool ok() const { return either_.index() == 0; }
  // Requires !ok().
  const Failure& failure() const { return (DS_CHECK(!ok()), std::get<1>(either_)); }

  // Requires ok().
  const T& operator*() const& { return (DS_CHECK(ok()), std::get<0>(either_)); }
  T& operator*() & { return (DS_CHECK(ok()), std::get<0>(either_)); }
  T&& operator*() && { return (DS_CHECK(ok()), std::get<0>(std::move(either_))); }
  const T* operator->() const { return &**this; }
  T* operator->() { return &**this; }

 private:
  std::variant<T, Failure> either_;
};

}  // namespace ds
