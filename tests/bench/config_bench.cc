// Parses and checks a ds_config over and over, for scripts/bench/config.
//
//     bench_config FILE
//
// Prints one JSON object: the median seconds of parsing alone and of CheckConfig as a whole.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/positioned_json.h"
#include "runtime/config/file/check_config.h"

namespace {

constexpr int kCalls = 201;

double MedianSeconds(const std::function<bool()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (!body()) return -1;
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kCalls / 2, seconds.end());
  return seconds[kCalls / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const auto text =
      argc == 2 ? ds::ReadFile(argv[1]) : ds::InvalidArgumentError("usage: bench_config FILE");
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", text.status().message().c_str());
    return 2;
  }
  const double parse = MedianSeconds([&] { return ds::ReadPositionedJson(*text).complete; });
  const double check =
      MedianSeconds([&] { return !ds::config::CheckConfig(*text, argv[1], 2).resolved.empty(); });
  std::printf("{\"parse\": %.9f, \"check\": %.9f}\n", parse, check);
  return 0;
}
