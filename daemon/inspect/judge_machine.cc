#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "daemon/inspect/judge.h"
#include "daemon/inspect/read_host.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/counted.h"

namespace ds::daemon {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
constexpr std::uint64_t kGibibyte = std::uint64_t{1} << 30;

bool HasFeature(const v1::ProcessorFacts& facts, std::string_view feature) {
  return std::find(facts.features().begin(), facts.features().end(), feature) !=
         facts.features().end();
}

// The pipes, link and pidfd of a rank, one of the pipes during its start only. The second constant
// is for the daemon itself.
constexpr std::uint64_t kDescriptorsPerRank = 5;
constexpr std::uint64_t kDescriptorsOfDaemon = 64;

std::string SpaceText(const v1::FolderFacts& facts) {
  return fmt::format("{} free of {}", ByteSize(facts.free()), ByteSize(facts.total()));
}

v1::Finding MakeUnreadable(std::string name, std::string_view where) {
  return Warn(std::move(name), fmt::format("{} cannot be read", where),
              "let the user of dsrun read /proc and /sys");
}

}  // namespace

v1::Finding JudgeProcessor(const v1::ProcessorFacts& facts) {
  // ARM kernels do not name the model.
  return Ok("processor", facts.model().empty() ? "not named by the kernel" : facts.model());
}

v1::Finding JudgeFeatures(const v1::ProcessorFacts& facts) {
  // The features that determine kernel speed, x86 first.
  constexpr std::array<std::string_view, 9> kShown = {"avx2",        "avx512f",  "avx512_bf16",
                                                      "avx512_fp16", "amx_tile", "amx_bf16",
                                                      "asimd",       "sve",      "bf16"};
  std::string shown;
  for (const std::string_view feature : kShown) {
    if (HasFeature(facts, feature)) shown += fmt::format("{}{}", shown.empty() ? "" : " ", feature);
  }
  if (facts.features().empty()) return MakeUnreadable("features", "/proc/cpuinfo");
  if (shown.empty()) {
    return Warn("features", "none that speeds up training",
                "CPU ranks need AVX2 or NEON to be of use; on a virtual machine, pass the host's "
                "processor model through");
  }
  return Ok("features", shown);
}

v1::Finding JudgeAmx(const v1::HostFacts& facts) {
  if (!HasFeature(facts.processor(), "amx_tile")) return Ok("AMX", "not there");
  if (!facts.has_dsrank() || !facts.dsrank().problem().empty()) {
    return Warn("AMX", "advertised, not tried", "dsrank does the trying");
  }
  if (facts.dsrank().amx_faults()) {
    return Warn(
        "AMX", "advertised, but executing it is an illegal instruction",
        "ranks leave it out by themselves (ONEDNN_MAX_CPU_ISA); for other LibTorch programs "
        "in bf16, export ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16");
  }
  return Ok("AMX", "works");
}

v1::Finding JudgeCores(const v1::ProcessorFacts& facts) {
  if (facts.usable_cores() == 0) return MakeUnreadable("cores", "/proc/self/status");
  std::string value = fmt::format("{} usable of {}", facts.usable_cores(), facts.cores());
  if (!facts.has_quota_cores() || facts.quota_cores() >= facts.usable_cores()) {
    return Ok("cores", value);
  }
  return Warn("cores", fmt::format("{}, the container may use {:.1f}", value, facts.quota_cores()),
              "start no more threads than that: OMP_NUM_THREADS, or fewer ranks");
}

v1::Finding JudgeNuma(const v1::ProcessorFacts& facts) {
  const std::string value = Counted(facts.numa_nodes(), "node");
  if (facts.numa_nodes() == 1) return Ok("NUMA", value);
  return Ok("NUMA", value + "; --bind_cores_to_rank keeps each rank on one");
}

v1::Finding JudgeMemory(const v1::MemoryFacts& facts) {
  if (!facts.has_total() || !facts.has_available()) {
    return MakeUnreadable("memory", "/proc/meminfo");
  }
  std::string value =
      fmt::format("{} free of {}", ByteSize(facts.available()), ByteSize(facts.total()));
  if (facts.has_limit() && facts.limit() < facts.total()) {
    value += fmt::format(", the container may use {}", ByteSize(facts.limit()));
  }
  // A rank needs half a gigabyte before it holds a parameter.
  if (facts.available() < kGibibyte) {
    return Warn("memory", value, "a single rank needs 0.5 GiB: free some memory");
  }
  return Ok("memory", value);
}

v1::Finding JudgeSharedMemory(const v1::HostFacts& facts) {
  const std::string name = "/dev/shm";
  // NCCL and Python data loaders put their buffers there; dsrun's CPU ranks do not.
  const auto bad = facts.gpus().empty() ? v1::Finding::WARN : v1::Finding::FAIL;
  const std::string hint =
      "NCCL and Python data loaders need it: mount -o remount,size=8g /dev/shm; in a container, "
      "docker run --shm-size=8g";
  if (!facts.has_shared_memory()) return Ok(name, "unknown");
  if (facts.shared_memory().missing()) return MakeFinding(bad, name, "there is no /dev/shm", hint);
  if (!facts.shared_memory().problem().empty()) {
    return Warn(
        name, "/dev/shm: " + facts.shared_memory().problem(),
        "NCCL and Python data loaders need it: see its mount, and whether the user of dsrun "
        "may use it");
  }
  const std::string value = SpaceText(facts.shared_memory());
  // 64 MiB is docker's default. Notices of a job show the message without the name.
  if (facts.shared_memory().free() <= 64 * kMebibyte) {
    return MakeFinding(bad, name, value + " in /dev/shm", hint);
  }
  if (!facts.gpus().empty() && facts.shared_memory().free() < kGibibyte) {
    return Warn(name, value, hint);
  }
  return Ok(name, value);
}

v1::Finding JudgeLockedMemory(const v1::HostFacts& facts) {
  if (!facts.limits().has_locked_memory()) return MakeUnreadable("memlock", "/proc/self/limits");
  const std::uint64_t limit = facts.limits().locked_memory();
  const std::string value = limit == kUnlimited ? "unlimited" : ByteSize(limit);
  if (limit == kUnlimited || facts.infiniband_devices() == 0) return Ok("memlock", value);
  return Warn("memlock", value,
              "InfiniBand registers its buffers: ulimit -l unlimited before dsrun is started, or "
              "/etc/security/limits.conf");
}

std::uint64_t RankOpenFiles(const v1::LimitFacts& facts) {
  return facts.has_open_files_of_ranks() ? facts.open_files_of_ranks() : facts.open_files();
}

v1::Finding JudgeOpenFiles(const v1::LimitFacts& facts, std::uint32_t ranks) {
  const std::string name = "nofile";
  if (!facts.has_open_files()) return MakeUnreadable(name, "/proc/self/limits");
  const auto describe = [](std::uint64_t limit) {
    return limit == kUnlimited ? "unlimited open files" : std::to_string(limit) + " open files";
  };
  const std::uint64_t needed = ranks * kDescriptorsPerRank + kDescriptorsOfDaemon;
  if (facts.open_files() < needed) {
    return Fail(name, fmt::format("{}, {} needed", describe(facts.open_files()), needed),
                "raise the hard limit (ulimit -Hn) in /etc/security/limits.conf or of the "
                "container, and log in again");
  }
  // A rank uses some for its data and checkpoints.
  const std::uint64_t of_ranks = RankOpenFiles(facts);
  if (of_ranks >= 1024) return Ok(name, describe(of_ranks));
  return Warn(
      name, describe(of_ranks),
      "raise the limit before dsrun is started: ulimit -n 65536, or /etc/security/limits.conf");
}

v1::Finding JudgeDisk(const v1::FolderFacts& run_directory) {
  const std::string name = "disk";
  const std::string hint = "choose another place with --run_dir";
  const std::string& path = run_directory.path();
  if (!run_directory.problem().empty()) {
    return Fail(name, path + ": " + run_directory.problem(), hint);
  }
  if (!run_directory.writable()) return Fail(name, path + " is not writable", hint);
  const std::string value = SpaceText(run_directory) + " at " + path;
  if (run_directory.free() < 100 * kMebibyte) {
    return Fail(name, value, "logs and checkpoints do not fit: free some, or " + hint);
  }
  if (run_directory.free() < 10 * kGibibyte) {
    return Warn(name, value, "few checkpoints fit: free some, or " + hint);
  }
  return Ok(name, value);
}

v1::Finding JudgeWorkingDirectory(const v1::FolderFacts& facts) {
  const std::string name = "working_directory";
  if (facts.problem().empty()) return Ok(name, SpaceText(facts) + " at " + facts.path());
  return Fail(name, facts.path() + ": " + facts.problem(),
              "the ranks run there; make it on this host, start dsrun elsewhere, or name another "
              "folder with workdir= in the hostfile");
}

v1::Finding JudgeCache(const v1::FolderFacts& facts) {
  const std::string name = "cache";
  const std::string value = SpaceText(facts) + " at " + facts.path();
  const std::string hint =
      "dsrun keeps its daemon there, and takes another folder where it cannot: free some space in "
      "the home of this user";
  if (!facts.problem().empty()) return Warn(name, facts.path() + ": " + facts.problem(), hint);
  if (!facts.writable()) return Warn(name, facts.path() + " is not writable", hint);
  return facts.free() < 100 * kMebibyte ? Warn(name, value, hint) : Ok(name, value);
}

// Checks the run directory's disk; a job names its own drives.
v1::Finding JudgeOffload(const v1::OffloadFacts& facts) {
  const std::string name = "offload";
  if (!facts.problem().empty()) {
    return Warn(name, "no file can be made there",
                facts.problem() + "; nvme_path may name another folder");
  }
  if (facts.file_system().empty()) return Ok(name, "not tried: there is no run directory");
  const std::string value = fmt::format("{}, {} the page cache, {}", facts.file_system(),
                                        facts.direct() ? "past" : "through",
                                        facts.why_not_ring().empty() ? "io_uring" : "threads");
  if (facts.in_memory()) {
    return Warn(name, value, "a file there uses memory: name a drive in nvme_path");
  }
  if (!facts.direct()) {
    return Warn(name, value,
                "offloaded data uses memory for a while: name a drive with O_DIRECT in nvme_path");
  }
  if (!facts.why_not_ring().empty()) {
    return Warn(name, value,
                "io_uring costs less: " + facts.why_not_ring() +
                    "; see kernel.io_uring_disabled, or the container's seccomp profile");
  }
  return Ok(name, value);
}

v1::Finding JudgeClock(std::int64_t host_unix_nanos, std::int64_t unix_nanos) {
  // The answer took its time, so that small differences mean nothing.
  constexpr std::int64_t kNoticed = 10;
  const std::string name = "clock";
  if (host_unix_nanos == 0) return Ok(name, "unknown");
  const std::int64_t seconds = host_unix_nanos / 1'000'000'000 - unix_nanos / 1'000'000'000;
  if (std::abs(seconds) < kNoticed) return Ok(name, "in step");
  return Warn(name, fmt::format("{} s {}", std::abs(seconds), seconds > 0 ? "ahead" : "behind"),
              "the times of its events are off by that: see the time service of this host");
}

}  // namespace ds::daemon
