#include "daemon/ranks/preflight.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

#include "daemon/host/mounts.h"
#include "daemon/host/needed_libraries.h"
#include "daemon/ranks/rank_command.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/gpu_signs.h"
#include "runtime/base/host_name.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/status.h"
#include "runtime/process/available_memory.h"
#include "runtime/process/cpu_topology.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// The pipes, link and pidfd of a rank, one of the pipes during its start only. The second constant
// is for the daemon itself.
constexpr std::uint64_t kDescriptorsPerRank = 5;
constexpr std::uint64_t kDescriptorsOfDaemon = 64;

// The default size in containers, too small for most jobs.
constexpr std::uint64_t kSmallSharedMemory = std::uint64_t{64} << 20;

// Names alone do not identify a machine: it has several addresses, and SSH aliases.
std::string IdentifyMachine() {
  const auto boot = ReadFile("/proc/sys/kernel/random/boot_id");
  std::error_code no_network;
  std::error_code no_processes;
  const fs::path network = fs::read_symlink("/proc/self/ns/net", no_network);
  const fs::path processes = fs::read_symlink("/proc/self/ns/pid", no_processes);
  if (!boot.ok() || no_network || no_processes) return "";
  return boot->substr(0, boot->find('\n')) + " " + network.string() + " " + processes.string();
}

std::optional<std::uint64_t> ReadFreeSharedMemory() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return std::nullopt;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

v1::Finding MakeOk(std::string name, std::string message) {
  return MakeFinding(v1::Finding::OK, std::move(name), std::move(message));
}

v1::Finding CheckLibTorch(const PreflightContext& context) {
  constexpr std::array<std::string_view, 2> kPrefixes = {"libtorch", "libc10"};
  const auto missing = FindMissingLibraries(context.dsrank, kPrefixes, context.library_path);
  if (!missing.ok()) {
    return MakeFinding(v1::Finding::FAIL, "dsrank", missing.status().message(),
                       "install dsrank again");
  }
  if (missing->empty()) return MakeOk("libtorch", "found by " + context.dsrank.string());
  return MakeFinding(v1::Finding::FAIL, "libtorch",
                     context.dsrank.string() + " does not find its " + missing->front(),
                     "install LibTorch where dsrank was built to find it, or put its lib folder "
                     "into LD_LIBRARY_PATH");
}

v1::Finding CheckDsrank(const PreflightContext& context) {
  if (context.dsrank.empty() || ::access(context.dsrank.c_str(), X_OK) != 0) {
    return MakeFinding(v1::Finding::FAIL, "dsrank",
                       "this host has no executable dsrank next to its dsrund",
                       "build with LibTorch (scripts/setup.sh) or install dsrank; other hosts look "
                       "for it at their $DSRUN_RANK, at its path on dsrun's host, and in PATH");
  }
  return MakeOk("dsrank", context.dsrank.string());
}

v1::Finding CheckProgram(const v1::PrepareRequest& request, const PreflightContext& context) {
  std::string_view search_path =
      request.search_path().empty() ? context.search_path : request.search_path();
  if (search_path.empty()) search_path = kDefaultSearchPath;
  const auto found = FindProgram(request.program(), search_path, request.working_directory());
  if (found.ok()) return MakeOk("program", *found);
  if (request.is_interpreter()) {
    return MakeFinding(v1::Finding::FAIL, "program", found.status().message(),
                       "every host runs this Python interpreter: make it or its environment "
                       "available under this path, or name one that all hosts have with --python");
  }
  return MakeFinding(v1::Finding::FAIL, "program", found.status().message(),
                     "check the program's name and that it is installed on this host");
}

v1::Finding CheckScript(const v1::PrepareRequest& request) {
  const fs::path path = fs::path(request.working_directory()) / request.script();
  int error = ::access(path.c_str(), R_OK) == 0 ? 0 : errno;
  std::error_code ignored;
  if (error == 0 && fs::is_directory(path, ignored)) error = EISDIR;
  if (error == 0) return MakeOk("script", path.string());
  return MakeFinding(v1::Finding::FAIL, "script", ErrnoError(error, path.string()).message(),
                     "every host needs the script under this path: copy or share its folder, or "
                     "name the folder with workdir= in the hostfile");
}

v1::Finding CheckWorkingDirectory(const v1::PrepareRequest& request) {
  const std::string& folder = request.working_directory();
  struct stat info {};
  int error = ::stat(folder.c_str(), &info) == 0 ? 0 : errno;
  if (error == 0 && !S_ISDIR(info.st_mode)) error = ENOTDIR;
  if (error == 0 && ::access(folder.c_str(), X_OK) != 0) error = errno;
  if (error == 0) return MakeOk("working_directory", folder);
  return MakeFinding(v1::Finding::FAIL, "working_directory",
                     folder + ": " + std::generic_category().message(error),
                     "the ranks run there; make it on this host, start dsrun elsewhere, or "
                     "name another folder with workdir= in the hostfile");
}

// The amount that ranks will use is not known in advance.
v1::Finding CheckSharedMemory(const HostResources& facts) {
  if (!facts.shared_memory_free) {
    return MakeFinding(v1::Finding::WARN, "shm", "there is no /dev/shm", "mount a tmpfs there");
  }
  const std::string message =
      std::to_string(*facts.shared_memory_free >> 20) + " MiB free in /dev/shm";
  if (*facts.shared_memory_free >= kSmallSharedMemory) return MakeOk("shm", message);
  return MakeFinding(v1::Finding::WARN, "shm", message,
                     "enlarge it (mount -o remount,size=2g /dev/shm; docker run --shm-size)");
}

v1::Finding CheckOpenFiles(const v1::PrepareRequest& request, const HostResources& facts) {
  const std::uint64_t needed = request.rank_count() * kDescriptorsPerRank + kDescriptorsOfDaemon;
  const std::string message = std::to_string(facts.open_files_limit) + " open files allowed, " +
                              std::to_string(needed) + " needed";
  if (facts.open_files_limit >= needed) return MakeOk("nofile", message);
  return MakeFinding(v1::Finding::FAIL, "nofile", message,
                     "raise the hard limit before starting dsrun: ulimit -Hn, or "
                     "/etc/security/limits.conf");
}

// Returns the first device number that this host does not have; "" if there is none. The driver
// checks UUIDs and MIG ids.
std::string FindMissingDevice(const v1::PrepareRequest& request, const HostResources& facts) {
  for (const std::string& device : request.devices()) {
    const std::optional<std::uint32_t> number = ParseNumber<std::uint32_t>(device);
    if (number.has_value() && *number >= facts.gpus) return device;
  }
  return "";
}

v1::Finding CheckDevice(const v1::PrepareRequest& request, const HostResources& facts) {
  const std::string message = std::to_string(facts.gpus) + " GPUs";
  // Without any GPU the ranks run on the CPU, unless the job requires CUDA.
  if (const std::string missing = FindMissingDevice(request, facts);
      facts.gpus > 0 && !missing.empty()) {
    return MakeFinding(v1::Finding::FAIL, "device",
                       message + ", and the job requires device " + missing,
                       "use fewer slots on this host (slots= in the hostfile, --num_gpus), or "
                       "others with --include");
  }
  if (request.device() != v1::PrepareRequest::DEVICE_CUDA || facts.gpus > 0 ||
      facts.has_gpu_driver) {
    return MakeOk("device", message);
  }
  return MakeFinding(v1::Finding::FAIL, "device", "CUDA was asked for and this host has no GPU",
                     "use --device cpu, or install the NVIDIA driver");
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

HostResources ProbeHost() {
  HostResources facts;
  facts.host_name = HostName();
  facts.machine = IdentifyMachine();
  facts.cores = static_cast<std::uint32_t>(ListAllowedCpus().size());
  facts.gpus = static_cast<std::uint32_t>(CountNumbered("/dev", "nvidia"));
  facts.has_gpu_driver = HasNvidiaDriver();
  facts.shared_memory_free = ReadFreeSharedMemory();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.open_files_limit = limit.rlim_cur;
  return facts;
}

// Ranks see the devices of the host's slots if the job has named some.
bool ComputesOnGpus(const v1::PrepareRequest& request, const PreflightContext& context) {
  if (request.device() == v1::PrepareRequest::DEVICE_CPU) return false;
  std::optional<std::string> visible = context.visible_devices;
  if (request.devices_size() > 0) visible = request.devices(0);
  GpuSigns signs = FindGpuSigns(context.dsrank, context.library_path, std::move(visible));
  signs.driver = context.facts.has_gpu_driver;
  return FindGpus(signs);
}

v1::Finding MakeFinding(v1::Finding::Level level, std::string name, std::string message,
                        std::string hint) {
  v1::Finding finding;
  finding.set_level(level);
  finding.set_name(std::move(name));
  finding.set_message(std::move(message));
  finding.set_hint(std::move(hint));
  return finding;
}

std::vector<v1::Finding> RunPreflight(const v1::PrepareRequest& request,
                                      const PreflightContext& context, const TellCheck& tell) {
  const std::string& folder = request.working_directory();
  const auto tell_of = [&](const std::string& check, const std::string& path) {
    const std::string type = FindFileSystemType(path);
    tell(check + " " + path + (type.empty() ? "" : " on " + type));
  };
  std::vector<v1::Finding> findings;
  if (!request.program().empty()) {
    tell(DescribeSearch(request.program(), folder));
    findings.push_back(CheckProgram(request, context));
  } else {
    tell_of("looking at", context.dsrank.string());
    findings.push_back(CheckDsrank(context));
    if (findings.back().level() == v1::Finding::OK) findings.push_back(CheckLibTorch(context));
  }
  if (!folder.empty()) {
    tell_of("looking at working directory", folder);
    findings.push_back(CheckWorkingDirectory(request));
  }
  if (!request.script().empty()) {
    tell_of("looking at script", (fs::path(folder) / request.script()).string());
    findings.push_back(CheckScript(request));
  }
  tell("looking at /dev/shm");
  findings.push_back(CheckSharedMemory(context.facts));
  findings.push_back(CheckOpenFiles(request, context.facts));
  findings.push_back(CheckDevice(request, context.facts));
  return findings;
}

v1::PrepareResponse ExamineHost(const v1::PrepareRequest& request, PreflightContext context,
                                const TellCheck& tell) {
  tell("looking at the resources of the host");
  context.facts = ProbeHost();
  v1::PrepareResponse response;
  response.set_core_count(context.facts.cores);
  response.set_machine(context.facts.machine);
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
