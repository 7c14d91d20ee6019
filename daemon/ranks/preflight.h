#pragma once

// Preflight finds problems of this host that would stop a job, before any rank is started.
//
// It reads the host and changes nothing. A check may wait for a file system that does not answer,
// so the daemon's loop does not run it (daemon/loop/worker.h). All inputs are collected in
// PreflightContext, so the checks can be tested without the host. Each check is one function with
// one finding. A finding that is not OK describes the problem and the fix.

#include <cstdint>
#include <filesystem>
#include <functional>
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

// Receives the check that begins and may wait for a file system, in words.
using TellCheck = std::function<void(const std::string&)>;

std::vector<v1::Finding> RunPreflight(
    const v1::PrepareRequest& request, const PreflightContext& context,
    const TellCheck& tell = [](const std::string&) {});

// Probes the host and answers the request, except for the port. `context` comes without facts.
v1::PrepareResponse ExamineHost(const v1::PrepareRequest& request, PreflightContext context,
                                const TellCheck& tell);

// Returns true if dsrun's own ranks would compute on GPUs, provided the job lets them choose.
bool ComputesOnGpus(const v1::PrepareRequest& request, const PreflightContext& context);

v1::Finding MakeFinding(v1::Finding::Level level, std::string name, std::string message,
                        std::string hint = "");

}  // namespace ds::daemon
