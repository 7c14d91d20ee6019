#pragma once

// Preflight finds problems of this host that would stop a job, before any rank is started.
//
// It reads the host and changes nothing. All inputs are collected in PreflightContext, so the
// checks can be tested without the host. Each check is one function with one finding. A finding
// that is not OK describes the problem and the fix.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/dsrun.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

struct HostResources {
  std::string host_name;
  std::string machine;      // as in PrepareResponse
  std::uint32_t cores = 0;  // usable by this process
  std::uint32_t gpus = 0;   // NVIDIA device files
  bool has_gpu_driver = false;
  std::optional<std::uint64_t>
      shared_memory_free;              // of /dev/shm; none when there is no such folder
  std::uint64_t open_files_limit = 0;  // soft limit of RLIMIT_NOFILE
};

HostResources ProbeHost();

struct PreflightContext {
  HostResources facts;
  std::filesystem::path dsrank;                // empty if this host has none
  std::string search_path;                     // the daemon's own PATH
  std::string library_path;                    // the daemon's own LD_LIBRARY_PATH
  std::optional<std::string> visible_devices;  // the daemon's own CUDA_VISIBLE_DEVICES
};

std::vector<v1::Finding> RunPreflight(const v1::PrepareRequest& request,
                                      const PreflightContext& context);

// Returns true if dsrun's own ranks would compute on GPUs, provided the job lets them choose.
bool ComputesOnGpus(const v1::PrepareRequest& request, const PreflightContext& context);

v1::Finding MakeFinding(v1::Finding::Level level, std::string name, std::string message,
                        std::string hint = "");

}  // namespace ds::daemon
