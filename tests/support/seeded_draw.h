#pragma once

// SeededDraw: choices that are the same in every run of a test.

#include <cstdint>
#include <initializer_list>
#include <random>

namespace ds::testing {

class SeededDraw {
 public:
  explicit SeededDraw(std::uint64_t seed) : random_(seed) {}

  template <typename Value>
  Value OneOf(std::initializer_list<Value> values) {
    const auto last = static_cast<int>(values.size()) - 1;
    return *(values.begin() + std::uniform_int_distribution<int>(0, last)(random_));
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace ds::testing
