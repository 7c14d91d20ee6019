#pragma once

// Contenders that are timed by turns, so that whatever else the machine does falls on all of them.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace ds::bench {

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 0.2;

struct Contender {
  at::Tensor written;  // where the call's work ends; reading an element waits for all of it
  std::function<void()> call;
  std::vector<double> seconds = {};  // of one call, by round
};

// Seconds of one call among several that follow one another.
inline double Seconds(const Contender& contender, int calls) {
  const auto wait = [&] { static_cast<void>(contender.written.flatten()[0].item()); };
  wait();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) contender.call();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
}

inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

inline void Compete(std::vector<Contender>& contenders) {
  for (int round = -1; round < kRounds; ++round) {
    for (Contender& each : contenders) {
      const int calls = std::clamp(static_cast<int>(kRoundSeconds / Seconds(each, 1)), 2, 1000);
      const double seconds = Seconds(each, calls);
      if (round >= 0) each.seconds.push_back(seconds);
    }
  }
}

}  // namespace ds::bench
