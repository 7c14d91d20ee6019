#pragma once

// Budget limits the steps and memory of one rendering. Code with work that grows with its input, or
// that allocates, spends from the budget first.
//
// Not thread-safe.

#include <cstdint>
#include <string>

#include "runtime/base/status.h"

namespace ds::tokenizer {

struct RenderLimits {
  std::uint64_t steps = 5'000'000;
  std::uint64_t bytes = std::uint64_t{256} << 20;  // of all texts and lists, made or searched
  int depth = 60;                                  // of blocks and calls
};

class Budget {
 public:
  explicit Budget(RenderLimits limits) : limits_(limits) {}

  int depth() const { return limits_.depth; }

  Status SpendStep() {
    if (++steps_ <= limits_.steps) return OkStatus();
    return ResourceExhaustedError("the template takes more than " + std::to_string(limits_.steps) +
                                  " steps");
  }

  // Also rejects byte counts that overflow.
  Status Spend(std::uint64_t bytes) {
    if (bytes <= limits_.bytes - bytes_) {
      bytes_ += bytes;
      return OkStatus();
    }
    bytes_ = limits_.bytes;
    return ResourceExhaustedError("the template makes more than " + std::to_string(limits_.bytes) +
                                  " bytes of text");
  }
  Status Spend(std::uint64_t count, std::uint64_t bytes_of_each) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, bytes_of_each, &bytes)) bytes = ~std::uint64_t{0};
    return Spend(bytes);
  }

 private:
  RenderLimits limits_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;  // <= limits_.bytes
};

}  // namespace ds::tokenizer
