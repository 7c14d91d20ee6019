#include "runtime/process/resource_limits.h"

#include <sys/resource.h>

#include <array>
#include <utility>

namespace ds {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 16> kResources = {{
    {"as", RLIMIT_AS},
    {"core", RLIMIT_CORE},
    {"cpu", RLIMIT_CPU},
    {"data", RLIMIT_DATA},
    {"fsize", RLIMIT_FSIZE},
    {"locks", RLIMIT_LOCKS},
    {"memlock", RLIMIT_MEMLOCK},
    {"msgqueue", RLIMIT_MSGQUEUE},
    {"nice", RLIMIT_NICE},
    {"nofile", RLIMIT_NOFILE},
    {"nproc", RLIMIT_NPROC},
    {"rss", RLIMIT_RSS},
    {"rtprio", RLIMIT_RTPRIO},
    {"rttime", RLIMIT_RTTIME},
    {"sigpending", RLIMIT_SIGPENDING},
    {"stack", RLIMIT_STACK},
}};

}  // namespace

std::optional<int> FindResourceNumber(std::string_view name) {
  for (const auto& [each, number] : kResources) {
    if (each == name) return number;
  }
  return std::nullopt;
}

std::vector<std::string> ListResourceNames() {
  std::vector<std::string> names;
  for (const auto& [name, number] : kResources) names.emplace_back(name);
  return names;
}

}  // namespace ds
