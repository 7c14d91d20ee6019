#include "daemon/host/host_probe.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

#include "runtime/base/files.h"
#include "runtime/process/cpu_topology.h"

namespace ds::daemon {
namespace {

std::optional<std::uint64_t> FreeSharedMemory() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return std::nullopt;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

}  // namespace

HostResources ProbeHost() {
  HostResources facts;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) facts.host_name = name.data();
  facts.cores = static_cast<std::uint32_t>(CountAllowedCpus());
  facts.gpus = static_cast<std::uint32_t>(CountNumbered("/dev", "nvidia"));
  facts.shared_memory_free = FreeSharedMemory();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.open_files_limit = limit.rlim_cur;
  return facts;
}

bool MayChooseMemory() {
  // Containers that forbid the choice forbid the question too.
  int mode = 0;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0;
}

std::uint64_t ResidentBytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return 0;
  return resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace ds::daemon
