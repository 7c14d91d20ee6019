#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/report/rows.h"
#include "runtime/base/byte_size.h"

namespace ds::cli {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

bool HasFeature(const ProcessorFacts& facts, std::string_view feature) {
  return std::find(facts.features.begin(), facts.features.end(), feature) != facts.features.end();
}

std::string LimitText(std::uint64_t limit) {
  return limit == LimitFacts::kUnlimited ? "unlimited" : std::to_string(limit);
}

ReportRow MakeUnreadableRow(std::string name, std::string_view where) {
  return {std::move(name), "unknown", Level::kWarn, fmt::format("{} cannot be read", where)};
}

std::string Plural(std::int64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

}  // namespace

ReportRow JudgeProcessor(const ProcessorFacts& facts) {
  // ARM kernels do not name the model.
  return {"processor", facts.model.empty() ? "not named by the kernel" : facts.model};
}

ReportRow JudgeFeatures(const ProcessorFacts& facts) {
  // The features that determine kernel speed, x86 first.
  constexpr std::array<std::string_view, 9> kShown = {"avx2",        "avx512f",  "avx512_bf16",
                                                      "avx512_fp16", "amx_tile", "amx_bf16",
                                                      "asimd",       "sve",      "bf16"};
  std::string shown;
  for (const std::string_view feature : kShown) {
    if (HasFeature(facts, feature)) shown += fmt::format("{}{}", shown.empty() ? "" : " ", feature);
  }
  if (facts.features.empty()) return MakeUnreadableRow("features", "/proc/cpuinfo");
  if (shown.empty()) {
    return {"features", "none that speeds up training", Level::kWarn,
            "CPU ranks need AVX2 or NEON to be of use; on a virtual machine, pass the host's "
            "processor model through"};
  }
  return {"features", shown};
}

ReportRow JudgeAmx(const HostFacts& facts) {
  if (!HasFeature(facts.processor, "amx_tile")) return {"AMX", "not there"};
  if (!facts.dsrank.problem.empty()) {
    return {"AMX", "advertised, not tried", Level::kWarn, "dsrank does the trying"};
  }
  if (facts.dsrank.amx_faults) {
    return {"AMX", "advertised, but executing it is an illegal instruction", Level::kWarn,
            "ranks leave it out by themselves (ONEDNN_MAX_CPU_ISA); for other LibTorch programs "
            "in bf16, export ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"};
  }
  return {"AMX", "works"};
}

ReportRow JudgeCores(const ProcessorFacts& facts) {
  if (facts.usable_cores == 0) return MakeUnreadableRow("cores", "/proc/self/status");
  std::string value = fmt::format("{} usable of {}", facts.usable_cores, facts.cores);
  if (!facts.quota_cores || *facts.quota_cores >= facts.usable_cores) return {"cores", value};
  return {"cores", fmt::format("{}, the container may use {:.1f}", value, *facts.quota_cores),
          Level::kWarn, "start no more threads than that: OMP_NUM_THREADS, or fewer ranks"};
}

ReportRow JudgeNuma(const ProcessorFacts& facts) {
  const std::string value = Plural(facts.numa_nodes, "node");
  if (facts.numa_nodes == 1) return {"NUMA", value};
  return {"NUMA", value + "; --bind_cores_to_rank keeps each rank on one"};
}

ReportRow JudgeMemory(const MemoryFacts& facts) {
  if (!facts.total || !facts.available) return MakeUnreadableRow("memory", "/proc/meminfo");
  std::uint64_t usable = *facts.available;
  std::string value =
      fmt::format("{} free of {}", ByteSize(*facts.available), ByteSize(*facts.total));
  if (facts.limit && *facts.limit < *facts.total) {
    value += fmt::format(", the container may use {}", ByteSize(*facts.limit));
    usable = std::min(usable, *facts.limit);
  }
  // A rank needs half a gigabyte before it holds a parameter.
  if (usable < kGibibyte) {
    return {"memory", value, Level::kWarn, "a single rank needs 0.5 GiB: free some memory"};
  }
  return {"memory", value};
}

ReportRow JudgeSharedMemory(const HostFacts& facts) {
  // NCCL and Python data loaders put their buffers there; dsrun's CPU ranks do not.
  const Level bad = facts.gpus.empty() ? Level::kWarn : Level::kFail;
  const std::string hint =
      "NCCL and Python data loaders need it: mount -o remount,size=8g /dev/shm; in a container, "
      "docker run --shm-size=8g";
  if (!facts.shared_memory) return {"/dev/shm", "not there", bad, hint};
  const std::string value = fmt::format("{} free of {}", ByteSize(facts.shared_memory->free),
                                        ByteSize(facts.shared_memory->total));
  // 64 MiB is docker's default.
  if (facts.shared_memory->free <= 64 * kMebibyte) return {"/dev/shm", value, bad, hint};
  if (facts.shared_memory->free < kGibibyte) return {"/dev/shm", value, Level::kWarn, hint};
  return {"/dev/shm", value};
}

ReportRow JudgeLockedMemory(const HostFacts& facts) {
  if (!facts.limits.locked_memory) return MakeUnreadableRow("memlock", "/proc/self/limits");
  const std::uint64_t limit = *facts.limits.locked_memory;
  const std::string value = limit == LimitFacts::kUnlimited ? "unlimited" : ByteSize(limit);
  if (limit == LimitFacts::kUnlimited || facts.infiniband_devices == 0) return {"memlock", value};
  return {"memlock", value, Level::kWarn,
          "InfiniBand registers its buffers: ulimit -l unlimited before dsrun is started, or "
          "/etc/security/limits.conf"};
}

ReportRow JudgeOpenFiles(const LimitFacts& facts) {
  if (!facts.open_files) return MakeUnreadableRow("nofile", "/proc/self/limits");
  const std::string value = LimitText(*facts.open_files) + " open files";
  const std::string hint = "ulimit -n 65536 before dsrun is started, or /etc/security/limits.conf";
  // The daemon uses four per rank and 64 of its own. A rank uses some for its data and checkpoints.
  if (*facts.open_files < 128) return {"nofile", value, Level::kFail, hint};
  if (*facts.open_files < 1024) return {"nofile", value, Level::kWarn, hint};
  return {"nofile", value};
}

ReportRow JudgeDisk(const std::optional<SpaceFacts>& facts) {
  const std::string hint = "choose another place with --run_dir";
  if (!facts) return {"disk", "the run directory's disk cannot be read", Level::kFail, hint};
  const std::string value = fmt::format("{} free of {} at {}", ByteSize(facts->free),
                                        ByteSize(facts->total), facts->path.string());
  if (!facts->writable) {
    return {"disk", facts->path.string() + " is not writable", Level::kFail, hint};
  }
  if (facts->free < 100 * kMebibyte) {
    return {"disk", value, Level::kFail, "logs and checkpoints do not fit: free some, or " + hint};
  }
  if (facts->free < 10 * kGibibyte) {
    return {"disk", value, Level::kWarn, "few checkpoints fit: free some, or " + hint};
  }
  return {"disk", value};
}

// Checks the run directory's disk; a job names its own drives.
ReportRow JudgeOffload(const OffloadFacts& facts) {
  const std::string name = "offload";
  if (!facts.problem.empty()) {
    return {name, "no file can be made there", Level::kWarn,
            facts.problem + "; nvme_path may name another folder"};
  }
  if (facts.file_system.empty()) return {name, "not tried: there is no run directory"};
  const std::string value =
      fmt::format("{}, {} the page cache, {}", facts.file_system, facts.direct ? "past" : "through",
                  facts.why_not_ring.empty() ? "io_uring" : "threads");
  if (facts.in_memory) {
    return {name, value, Level::kWarn, "a file there uses memory: name a drive in nvme_path"};
  }
  if (!facts.direct) {
    return {name, value, Level::kWarn,
            "offloaded data uses memory for a while: name a drive with O_DIRECT in nvme_path"};
  }
  if (!facts.why_not_ring.empty()) {
    return {name, value, Level::kWarn,
            "io_uring costs less: " + facts.why_not_ring +
                "; see kernel.io_uring_disabled, or the container's seccomp profile"};
  }
  return {name, value};
}

}  // namespace ds::cli
