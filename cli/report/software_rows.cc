#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "cli/report/rows.h"

namespace ds::cli {
namespace {

// Parses "6.1.0-13-amd64" as {6, 1}; returns {0, 0} for other text.
std::pair<int, int> MajorMinor(const std::string& version) {
  int major = 0;
  int minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2) return {0, 0};
  return {major, minor};
}

}  // namespace

ReportRow JudgeDsrun(std::string_view dsrun_version) {
  return {"dsrun", fmt::format("{}, compiled by g++ {}", dsrun_version, __VERSION__)};
}

ReportRow JudgeDsrank(const DsrankFacts& facts, std::string_view dsrun_version) {
  if (!facts.problem.empty()) {
    return {"dsrank", facts.problem, Level::kFail,
            "`dsrun train` cannot run here: build with LibTorch (scripts/setup.sh), or put dsrank "
            "next to dsrun; other programs run without it"};
  }
  if (facts.version != dsrun_version) {
    return {"dsrank", fmt::format("{} at {}", facts.version, facts.path.string()), Level::kFail,
            fmt::format("dsrun is {}: install the two from one build", dsrun_version)};
  }
  return {"dsrank", fmt::format("{} at {}", facts.version, facts.path.string())};
}

ReportRow JudgeLibTorch(const DsrankFacts& facts) {
  if (!facts.problem.empty()) return {"LibTorch", "unknown without dsrank"};
  if (facts.libtorch.empty())
    return {"LibTorch", "unknown", Level::kWarn, "dsrank did not report it"};
  if (MajorMinor(facts.libtorch) < std::pair(2, 6)) {
    return {"LibTorch", facts.libtorch, Level::kFail, "2.6 or newer is needed"};
  }
  const std::string kernels =
      facts.cpu_capability.empty() ? "" : fmt::format(", {} kernels", facts.cpu_capability);
  return {"LibTorch", facts.libtorch + kernels};
}

ReportRow JudgeCompiler(const DsrankFacts& facts) {
  if (!facts.problem.empty()) return {"compiler", "unknown without dsrank"};
  return {"compiler", fmt::format("dsrank was compiled by g++ {}", facts.compiler)};
}

ReportRow JudgeKernel(const HostFacts& facts) {
  const std::string value = facts.system.empty()
                                ? fmt::format("Linux {}", facts.kernel)
                                : fmt::format("Linux {}, {}", facts.kernel, facts.system);
  if (facts.kernel.empty()) return {"kernel", "unknown", Level::kWarn, "/proc cannot be read"};
  // pidfd_open and P_PIDFD were added in 5.3 and 5.4.
  if (MajorMinor(facts.kernel) < std::pair(5, 4)) {
    return {"kernel", value, Level::kFail, "Linux 5.4 or newer is needed to watch the ranks"};
  }
  return {"kernel", value};
}

}  // namespace ds::cli
