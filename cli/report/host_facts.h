#pragma once

// HostFacts holds the data of one host for `dsrun report`: facts only; rows.h evaluates them. Plain
// values.
//
// An unreadable number is absent, an unreadable text is empty.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ds::cli {

struct ProcessorFacts {
  std::string model;
  std::vector<std::string> features;  // in the kernel's spelling: "avx2", "amx_tile", "asimd"
  int cores = 0;                      // online logical processors
  int usable_cores = 0;               // the part that this process may run on
  std::optional<double> quota_cores;  // the control group's limit
  int numa_nodes = 1;
};

struct MemoryFacts {
  std::optional<std::uint64_t> total, available;
  std::optional<std::uint64_t> limit;  // the control group's limit
};

struct SpaceFacts {
  std::filesystem::path path;  // the inspected path: the nearest existing folder
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

// Results of a test of NVMe offload in the folder that jobs would write.
struct OffloadFacts {
  std::string problem;  // the reason why no file can be created there; empty if it can
  std::string file_system;
  bool in_memory = false;
  bool direct = false;       // bypasses the page cache
  std::string why_not_ring;  // the reason why io_uring is not used; empty if it is
};

// The output of `dsrank facts`; see runtime/rank/main.cc.
struct DsrankFacts {
  std::filesystem::path path;  // the expected location
  std::string problem;         // the reason why it did not answer; empty if it did
  std::string version, libtorch, compiler, cpu_capability;
  bool amx_faults = false;
  bool cuda_plugin = false;
  std::string cuda_problem;  // the reason why there is no CUDA plugin
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
  std::vector<std::string> gpus;           // models, as reported by the NVIDIA driver
  std::string gpu_driver;                  // its version
  std::vector<InterfaceFacts> interfaces;  // without loopback
  int infiniband_devices = 0;
  OffloadFacts offload;
  DsrankFacts dsrank;
};

}  // namespace ds::cli
