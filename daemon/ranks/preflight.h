#pragma once

// Preflight: what on this host would stop a job, found before any rank is started.
//
// Reads the host, changes nothing. What is judged is gathered in one place, so that the judgement
// is tested without the host. Each check is one function and one finding; a finding that is not OK
// says what was found and what to do.

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
  std::uint32_t cores = 0;  // this process may use
  std::uint32_t gpus = 0;   // NVIDIA device files
  bool has_gpu_driver = false;
  std::optional<std::uint64_t>
      shared_memory_free;              // of /dev/shm; none when there is no such folder
  std::uint64_t open_files_limit = 0;  // soft limit of RLIMIT_NOFILE
};

HostResources ProbeHost();

struct PreflightContext {
  HostResources facts;
  std::filesystem::path dsrank;                // empty when this host has none
  std::string search_path;                     // the daemon's own PATH
  std::string library_path;                    // the daemon's own LD_LIBRARY_PATH
  std::optional<std::string> visible_devices;  // its own CUDA_VISIBLE_DEVICES
};

std::vector<v1::Finding> RunPreflight(const v1::PrepareRequest& request,
                                      const PreflightContext& context);

// Tells whether our own ranks would compute on GPUs, if the job lets them choose.
bool ComputesOnGpus(const v1::PrepareRequest& request, const PreflightContext& context);

v1::Finding MakeFinding(v1::Finding::Level level, std::string name, std::string message,
                        std::string hint = "");

}  // namespace ds::daemon
