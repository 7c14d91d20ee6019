#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "daemon/inspect/judge.h"

namespace ds::daemon {
namespace {

// Parses "6.1.0-13-amd64" as {6, 1}; returns {0, 0} for other text.
std::pair<int, int> MajorMinor(const std::string& version) {
  int major = 0;
  int minor = 0;
  if (std::sscanf(version.c_str(), "%d.%d", &major, &minor) != 2) return {0, 0};
  return {major, minor};
}

}  // namespace

v1::Finding JudgeDsrun(const v1::HostFacts& facts) {
  return Ok("dsrun",
            fmt::format("{}, compiled by g++ {}", facts.dsrun_version(), facts.dsrun_compiler()));
}

v1::Finding JudgeDsrank(const v1::DsrankFacts& facts, std::string_view dsrun_version) {
  if (!facts.problem().empty() && !facts.hint().empty()) {
    return Fail("dsrank", facts.problem(), facts.hint());
  }
  if (!facts.problem().empty()) {
    return Fail("dsrank", facts.problem(),
                "`dsrun train` cannot run here: build with LibTorch (scripts/setup.sh), or install "
                "dsrank and LibTorch at the same path as on dsrun's host (DSRUN_RANK names another "
                "one); other programs run without it");
  }
  if (dsrun_version.empty()) return Ok("dsrank", facts.path());
  const std::string value = fmt::format("{} at {}", facts.version(), facts.path());
  if (facts.version() == dsrun_version) return Ok("dsrank", value);
  return Fail("dsrank", value,
              fmt::format("dsrun is {}: install the two from one build", dsrun_version));
}

v1::Finding JudgeLibTorch(const v1::DsrankFacts& facts) {
  if (!facts.problem().empty()) return Ok("LibTorch", "unknown without dsrank");
  if (facts.libtorch().empty()) return Warn("LibTorch", "unknown", "dsrank did not report it");
  if (MajorMinor(facts.libtorch()) < std::pair(2, 6)) {
    return Fail("LibTorch", facts.libtorch(), "2.6 or newer is needed");
  }
  const std::string kernels =
      facts.cpu_capability().empty() ? "" : fmt::format(", {} kernels", facts.cpu_capability());
  return Ok("LibTorch", facts.libtorch() + kernels);
}

v1::Finding JudgeCompiler(const v1::DsrankFacts& facts) {
  if (!facts.problem().empty()) return Ok("compiler", "unknown without dsrank");
  return Ok("compiler", fmt::format("dsrank was compiled by g++ {}", facts.compiler()));
}

v1::Finding JudgeKernel(const v1::HostFacts& facts) {
  const std::string value = facts.system().empty()
                                ? fmt::format("Linux {}", facts.kernel())
                                : fmt::format("Linux {}, {}", facts.kernel(), facts.system());
  if (facts.kernel().empty()) return Warn("kernel", "unknown", "/proc cannot be read");
  // pidfd_open and P_PIDFD were added in 5.3 and 5.4.
  if (MajorMinor(facts.kernel()) < std::pair(5, 4)) {
    return Fail("kernel", value, "Linux 5.4 or newer is needed to watch the ranks");
  }
  return Ok("kernel", value);
}

v1::Finding JudgePython(const v1::Python& python) {
  if (!python.problem().empty()) return Warn("Python", python.problem(), python.hint());
  const std::string& torch = python.torch();
  return Ok("Python", python.version() + (torch.empty() ? ", no torch" : ", torch " + torch));
}

}  // namespace ds::daemon
