#include "cli/job/job_id.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <random>

namespace ds::cli {
namespace {

constexpr std::size_t kLongestName = 32;

std::string Readable(std::string_view name) {
  name.remove_prefix(name.find_last_of('/') + 1);  // npos + 1 is 0
  std::string readable;
  for (const char c : name.substr(0, kLongestName)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
    readable += plain ? c : '-';
  }
  return readable.empty() || readable[0] == '.' ? "job" + readable : readable;
}

}  // namespace

std::string MakeJobId(std::string_view name, std::int64_t unix_nanos) {
  const std::time_t seconds = unix_nanos / 1'000'000'000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%Y%m%d-%H%M%S", &local);
  std::array<char, 16> random{};
  std::snprintf(random.data(), random.size(), "%04x", std::random_device()() & 0xFFFFU);
  return Readable(name) + "-" + time.data() + "-" + random.data();
}

}  // namespace ds::cli
