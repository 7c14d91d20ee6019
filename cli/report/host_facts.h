#pragma once

// HostFacts is what `dsrun report` knows about one host: facts only, judged in rows.h. Plain
// values.
//
// A number that could not be read is absent, a text that could not be read is empty.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ds::cli {

struct ProcessorFacts {
  std::string model;
  std::vector<std::string> features;  // as the kernel spells them: "avx2", "amx_tile", "asimd"
  int cores = 0;                      // logical processors that are online
  int usable_cores = 0;               // of these, the ones this process may run on
  std::optional<double> quota_cores;  // what the control group allows
  int numa_nodes = 1;
};

struct MemoryFacts {
  std::optional<std::uint64_t> total, available;
  std::optional<std::uint64_t> limit;  // what the control group allows
};

struct SpaceFacts {
  std::filesystem::path path;  // what was looked at: the nearest folder that exists
  std::uint64_t total = 0, free = 0;
  bool writable = false;
};

struct LimitFacts {
  // Soft limits. Absent: not readable. kUnlimited: no limit.
  static constexpr std::uint64_t kUnlimited = UINT64_MAX;
  std::optional<std::uint64_t> locked_memory, open_files;
};

struct InterfaceFacts {
  std::string name;
  bool up = false;
  std::optional<std::uint64_t> megabits_per_second;
};

// OffloadFacts is what offload to NVMe finds where jobs would write.
struct OffloadFacts {
  std::string problem;  // why no file can be made there
  std::string file_system;
  bool in_memory = false;
  bool direct = false;       // past the page cache
  std::string why_not_ring;  // why io_uring is not used; empty when it is
};

// DsrankFacts is what `dsrank facts` says; see runtime/rank/main.cc.
struct DsrankFacts {
  std::filesystem::path path;  // where it was looked for
  std::string problem;         // why it did not answer; empty when it did
  std::string version, libtorch, compiler, cpu_capability;
  bool amx_faults = false;
  bool cuda_plugin = false;
  std::string cuda_problem;  // why there is no CUDA plugin
  std::string cuda, nccl;    // versions
  int cuda_devices = 0;
};

struct HostFacts {
  std::string name;
  std::string kernel;  // release: "6.1.0-13-amd64"
  std::string system;  // "Debian GNU/Linux 12 (bookworm)"
  ProcessorFacts processor;
  MemoryFacts memory;
  std::optional<SpaceFacts> shared_memory;  // /dev/shm
  std::optional<SpaceFacts> run_directory;
  LimitFacts limits;
  std::vector<std::string> gpus;           // models, as the NVIDIA driver shows them
  std::string gpu_driver;                  // its version
  std::vector<InterfaceFacts> interfaces;  // without loopback
  int infiniband_devices = 0;
  OffloadFacts offload;
  DsrankFacts dsrank;
};

}  // namespace ds::cli
