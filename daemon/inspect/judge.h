#pragma once

// The judgement of a host: one pure function per question, from facts to one finding.
//
//   OK    nothing to do
//   WARN  jobs run; something is slow, small or missing
//   FAIL  a job would not start, or would stop
//
// Preflight and `dsrun report` use the same functions. A finding that is not OK has a hint. Unknown
// facts are no failure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/dsrun.pb.h"
#include "proto/host_facts.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

v1::Finding MakeFinding(v1::Finding::Level level, std::string name, std::string message,
                        std::string hint = "");
v1::Finding Ok(std::string name, std::string message);
v1::Finding Warn(std::string name, std::string message, std::string hint);
v1::Finding Fail(std::string name, std::string message, std::string hint);

// In judge_software.cc. `dsrun_version` is the required one; "" = any.
v1::Finding JudgeDsrun(const v1::HostFacts& facts);
v1::Finding JudgeDsrank(const v1::DsrankFacts& facts, std::string_view dsrun_version);
v1::Finding JudgeLibTorch(const v1::DsrankFacts& facts);
v1::Finding JudgeCompiler(const v1::DsrankFacts& facts);
v1::Finding JudgeKernel(const v1::HostFacts& facts);
v1::Finding JudgePython(const v1::Python& python);

// In judge_machine.cc.
v1::Finding JudgeProcessor(const v1::ProcessorFacts& facts);
v1::Finding JudgeFeatures(const v1::ProcessorFacts& facts);
v1::Finding JudgeAmx(const v1::HostFacts& facts);
v1::Finding JudgeCores(const v1::ProcessorFacts& facts);
v1::Finding JudgeNuma(const v1::ProcessorFacts& facts);
v1::Finding JudgeMemory(const v1::MemoryFacts& facts);
v1::Finding JudgeSharedMemory(const v1::HostFacts& facts);
v1::Finding JudgeLockedMemory(const v1::HostFacts& facts);
// The soft limit that ranks start with.
std::uint64_t RankOpenFiles(const v1::LimitFacts& facts);
// The daemon needs descriptors for its ranks, and each rank some of its own.
v1::Finding JudgeOpenFiles(const v1::LimitFacts& facts, std::uint32_t ranks);
v1::Finding JudgeDisk(const v1::FolderFacts& run_directory);
v1::Finding JudgeWorkingDirectory(const v1::FolderFacts& facts);
v1::Finding JudgeCache(const v1::FolderFacts& facts);
v1::Finding JudgeOffload(const v1::OffloadFacts& facts);

// The host's clock against the one of this machine, when the host's answer arrived; 0 = unknown.
v1::Finding JudgeClock(std::int64_t host_unix_nanos, std::int64_t unix_nanos);

// In judge_devices.cc.
// Returns true if the facts say that the host has no GPU. Unknown facts do not say so.
bool HasNoGpus(const v1::HostFacts& facts);
v1::Finding JudgeGpus(const v1::HostFacts& facts);
v1::Finding JudgeGpuUsers(const v1::HostFacts& facts);
v1::Finding JudgeDriver(const v1::HostFacts& facts);
v1::Finding JudgeCuda(const v1::HostFacts& facts);
v1::Finding JudgeNccl(const v1::HostFacts& facts);
v1::Finding JudgeNetwork(const v1::HostFacts& facts);
// Says whether the host has the devices that the job names or requires.
v1::Finding JudgeDevices(const v1::HostFacts& facts, const v1::PrepareRequest& request);

// The remedy for a folder that does not answer.
inline constexpr char kMountsHint[] =
    "check the mounts of this host, and whether their servers answer";
// A part of the host that has not answered in time: "working directory /data on nfs4 ...".
v1::Finding JudgeUnanswered(std::string message, std::string hint = kMountsHint);

// Judges all facts that were read, in the order of the report. `ranks` will run on the host.
std::vector<v1::Finding> JudgeHost(const v1::HostFacts& facts, std::uint32_t ranks);

}  // namespace ds::daemon
