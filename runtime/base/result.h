#pragma once

// Outcome and Result: Status and StatusOr for failures of a type of their own, which say more than
// a code and a sentence: of which kind they are, who is to blame, what the user may do.
//
//     Outcome<HostFailure> Authenticate();
//     Result<Facts, HostFailure> AskForFacts();
//
// Threads: plain values.

#include <optional>
#include <utility>
#include <variant>

#include "runtime/base/check.h"

namespace ds {

template <typename Failure>
class [[nodiscard]] Outcome {
 public:
  Outcome() = default;                                        // it went well
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
