#include "daemon/inspect/preflight.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include "daemon/inspect/bound_facts.h"
#include "daemon/inspect/dsrank_facts.h"
#include "daemon/inspect/find_program.h"
#include "daemon/inspect/judge.h"
#include "daemon/inspect/mounts.h"
#include "daemon/inspect/read_host.h"
#include "runtime/base/clock.h"
#include "runtime/base/gpu_signs.h"
#include "runtime/base/status.h"
#include "runtime/process/available_memory.h"
#include "runtime/process/cpu_topology.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

v1::Finding CheckProgram(const v1::PrepareRequest& request, const PreflightContext& context) {
  std::string_view search_path =
      request.search_path().empty() ? context.search_path : request.search_path();
  if (search_path.empty()) search_path = kDefaultSearchPath;
  const auto found = FindProgram(request.program(), search_path, request.working_directory());
  if (found.ok()) return Ok("program", *found);
  if (request.is_interpreter()) {
    return Fail("program", found.status().message(),
                "every host runs this Python interpreter: make it or its environment "
                "available under this path, or name one that all hosts have with --python");
  }
  return Fail("program", found.status().message(),
              "check the program's name and that it is installed on this host");
}

v1::Finding CheckScript(const v1::PrepareRequest& request) {
  const fs::path path = fs::path(request.working_directory()) / request.script();
  int error = ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
  std::error_code ignored;
  if (error == 0 && fs::is_directory(path, ignored)) error = EISDIR;
  if (error == 0) return Ok("script", path.string());
  return Fail("script", ErrnoError(error, path.string()).message(),
              "every host needs the script under this path: copy or share its folder, or "
              "name the folder with workdir= in the hostfile");
}

// Containers that forbid choosing memory nodes also forbid this query.
bool MayChooseMemory() {
  int mode = 0;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0;
}

void DescribeCores(v1::PrepareResponse* response) {
  const CpuTopology topology = ReadCpuTopology();
  for (const int core : topology.cores) {
    response->add_usable_cores(static_cast<std::uint32_t>(core));
  }
  if (!MayChooseMemory()) return;
  for (const NumaNode& node : topology.nodes) {
    v1::NumaNode* described = response->add_numa_nodes();
    described->set_id(static_cast<std::uint32_t>(node.id));
    for (const int cpu : node.cpus) described->add_cpus(static_cast<std::uint32_t>(cpu));
    described->set_memory_bytes(node.memory_bytes);
  }
}

}  // namespace

// Ranks see the devices of the host's slots if the job has named some.
bool ComputesOnGpus(const v1::PrepareRequest& request, const PreflightContext& context) {
  if (request.device() == v1::PrepareRequest::DEVICE_CPU) return false;
  std::optional<std::string> visible = context.visible_devices;
  if (request.devices_size() > 0) visible = request.devices(0);
  GpuSigns signs = FindGpuSigns(context.dsrank, context.library_path, std::move(visible));
  signs.driver = context.facts.has_gpu_driver();
  return FindGpus(signs);
}

std::vector<v1::Finding> RunPreflight(const v1::PrepareRequest& request,
                                      const PreflightContext& context, const TellCheck& tell) {
  const std::string& folder = request.working_directory();
  const auto tell_of = [&](const std::string& check, const std::string& path) {
    tell(check + " " + WithFileSystem(path));
  };
  std::vector<v1::Finding> findings;
  if (!request.program().empty()) {
    tell(DescribeSearch(request.program(), folder));
    findings.push_back(CheckProgram(request, context));
  } else {
    tell_of("looking at", context.dsrank.string());
    findings.push_back(JudgeDsrank(FindDsrank(context.dsrank, context.library_path), ""));
  }
  if (!folder.empty()) {
    tell_of("looking at working directory", folder);
    findings.push_back(JudgeWorkingDirectory(ReadFolder(folder)));
  }
  if (!request.script().empty()) {
    tell_of("looking at script", (fs::path(folder) / request.script()).string());
    findings.push_back(CheckScript(request));
  }
  // These facts hold no GPUs: whether the program needs shared memory for NCCL is unknown.
  findings.push_back(JudgeSharedMemory(context.facts));
  findings.push_back(JudgeOpenFiles(context.facts.limits(), request.rank_count()));
  findings.push_back(JudgeDevices(context.facts, request));
  return findings;
}

v1::PrepareResponse ExamineHost(const v1::PrepareRequest& request, PreflightContext context,
                                const TellCheck& tell) {
  tell("looking at the resources of the host");
  ReadResources("/", &context.facts);
  BoundFacts(&context.facts);
  if (context.open_files_of_ranks) {
    context.facts.mutable_limits()->set_open_files_of_ranks(*context.open_files_of_ranks);
  }
  v1::PrepareResponse response;
  response.set_core_count(context.facts.processor().usable_cores());
  response.set_machine(context.facts.machine());
  response.set_ranks_on_gpus(ComputesOnGpus(request, context));
  response.set_unix_nanos(Clock::System().UnixNanos());
  if (const auto bytes = ReadAvailableMemory()) {
    response.set_available_memory(std::max<std::uint64_t>(1, *bytes));
  }
  for (v1::Finding& finding : RunPreflight(request, context, tell)) {
    *response.add_findings() = std::move(finding);
  }
  if (request.describe_cores()) DescribeCores(&response);
  return response;
}

}  // namespace ds::daemon
