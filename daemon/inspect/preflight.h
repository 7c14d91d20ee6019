#pragma once

// Preflight finds problems of this host that would stop a job, before any rank is started.
//
// It reads the host and changes nothing. A check may wait for a file system that does not answer,
// so the daemon's loop does not run it (daemon/loop/worker.h). It reads and judges the part of the
// facts that the job needs, with the functions of `dsrun report` (read_host.h, judge.h), and looks
// for the job's own program and script.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/dsrun.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

struct PreflightContext {
  v1::HostFacts facts;                                    // those of ReadResources
  std::filesystem::path dsrank;                           // empty if this host has none
  std::string search_path;                                // the daemon's own PATH
  std::string library_path;                               // the daemon's own LD_LIBRARY_PATH
  std::optional<std::string> visible_devices;             // the daemon's own CUDA_VISIBLE_DEVICES
  std::optional<std::uint64_t> open_files_of_ranks = {};  // nullopt: as for this process
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

}  // namespace ds::daemon
