#pragma once

// The memory and the users of this host's GPUs, from nvidia-smi. dsrund is a static program, so it
// cannot load NVML itself.
//
// Thread-safe.

#include <chrono>
#include <filesystem>
#include <string_view>

#include "proto/host_facts.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

// Runs nvidia-smi, found in `search_path`, and lists the GPUs of its answer. If there is none,
// `gpu_problem` says why.
void AskNvidiaSmi(std::string_view search_path, std::chrono::nanoseconds time_limit,
                  v1::HostFacts* facts);

// Moves the GPUs of the driver's files into the list if nvidia-smi has listed none, and says so in
// `gpu_problem`.
void CompleteGpus(v1::HostFacts* facts);

// The arguments of nvidia-smi and the parsers of their answers: a line per GPU or process, in MiB.
// Lines that do not have this form are skipped.
inline constexpr std::string_view kGpuQuery = "--query-gpu=uuid,memory.total,memory.used,name";
inline constexpr std::string_view kGpuUserQuery =
    "--query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name";
void ParseGpus(std::string_view csv, v1::HostFacts* facts);
// Adds the users to the GPUs of `facts`. The names of users come from `root`.
void ParseGpuUsers(std::string_view csv, const std::filesystem::path& root, v1::HostFacts* facts);

}  // namespace ds::daemon
