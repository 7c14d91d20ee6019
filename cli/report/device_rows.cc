#include <fmt/format.h>

#include <algorithm>

#include "cli/report/rows.h"

namespace ds::cli {
namespace {

std::string SpeedText(const InterfaceFacts& interface) {
  if (!interface.megabits_per_second) return interface.name;
  if (*interface.megabits_per_second < 1000) {
    return fmt::format("{} ({} Mbit/s)", interface.name, *interface.megabits_per_second);
  }
  return fmt::format("{} ({} Gbit/s)", interface.name, *interface.megabits_per_second / 1000);
}

}  // namespace

ReportRow JudgeGpus(const HostFacts& facts) {
  if (facts.gpus.empty()) return {"GPUs", "none: ranks run on CPU"};
  const auto same = std::count(facts.gpus.begin(), facts.gpus.end(), facts.gpus.front());
  const bool alike = same == static_cast<std::ptrdiff_t>(facts.gpus.size());
  const std::string value =
      fmt::format("{} x {}{}", facts.gpus.size(), facts.gpus.front(), alike ? "" : " and others");
  if (!facts.dsrank.problem.empty()) return {"GPUs", value};
  if (!facts.dsrank.cuda_plugin) {
    return {"GPUs", value, Level::kWarn,
            fmt::format("dsrank cannot use them ({}); install CUDA and NCCL and build again, or "
                        "use --device cpu",
                        facts.dsrank.cuda_problem)};
  }
  if (facts.dsrank.cuda_devices < static_cast<int>(facts.gpus.size())) {
    return {"GPUs", value, Level::kWarn,
            fmt::format("LibTorch sees {}: check CUDA_VISIBLE_DEVICES and nvidia-smi",
                        facts.dsrank.cuda_devices)};
  }
  return {"GPUs", value};
}

ReportRow JudgeDriver(const HostFacts& facts) {
  if (!facts.gpu_driver.empty()) return {"GPU driver", facts.gpu_driver};
  if (facts.gpus.empty()) return {"GPU driver", "none"};
  return {"GPU driver", "unknown", Level::kWarn, "/proc/driver/nvidia/version cannot be read"};
}

ReportRow JudgeCuda(const HostFacts& facts) {
  if (!facts.dsrank.cuda.empty()) return {"CUDA", facts.dsrank.cuda};
  return {"CUDA", facts.gpus.empty() ? "not used" : "not available to dsrank"};
}

ReportRow JudgeNccl(const HostFacts& facts) {
  if (!facts.dsrank.nccl.empty()) return {"NCCL", facts.dsrank.nccl};
  return {"NCCL", facts.gpus.empty() ? "not used" : "not available to dsrank"};
}

ReportRow JudgeNetwork(const HostFacts& facts) {
  std::string value;
  for (const InterfaceFacts& interface : facts.interfaces) {
    if (!interface.up) continue;
    value += (value.empty() ? "" : ", ") + SpeedText(interface);
  }
  if (facts.infiniband_devices > 0) {
    value += fmt::format("{}{} InfiniBand", value.empty() ? "" : ", ", facts.infiniband_devices);
  }
  if (!value.empty()) return {"network", value};
  return {"network", "no interface is up", Level::kWarn, "jobs can run on this host alone"};
}

}  // namespace ds::cli
