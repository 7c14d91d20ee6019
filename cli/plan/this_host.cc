#include "cli/plan/this_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>
#include <string>

#include "cli/plan/core_list.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

void AddInterfaceAddresses(std::vector<std::string>* names) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    const void* address = nullptr;
    if (family == AF_INET) {
      address = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    } else if (family == AF_INET6) {
      address = &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address != nullptr && ::inet_ntop(family, address, text.data(), text.size()) != nullptr) {
      names->emplace_back(text.data());
    }
  }
  ::freeifaddrs(first);
}

// Entries of `folder` called `prefix` and a number.
int CountNumbered(const fs::path& folder, std::string_view prefix) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
    if (name.find_first_not_of("0123456789", prefix.size()) == std::string::npos) ++count;
  }
  return count;
}

// The lowest numbered logical cpu that shares a core with `cpu`; `cpu` itself when unknown.
int FirstSibling(int cpu) {
  const StatusOr<std::string> text = ReadFile("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                              "/topology/thread_siblings_list");
  if (!text.ok()) return cpu;
  const StatusOr<std::vector<int>> siblings = ParseCoreList(text->substr(0, text->find('\n')));
  return siblings.ok() ? siblings->front() : cpu;
}

std::vector<int> UsableCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {0};
  std::vector<int> cores;
  std::vector<int> taken;  // first siblings of the cores that are in already
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const int core = FirstSibling(cpu);
    if (std::find(taken.begin(), taken.end(), core) != taken.end()) continue;
    taken.push_back(core);
    cores.push_back(cpu);
  }
  return cores;
}

}  // namespace

bool ThisHost::Is(std::string_view host) const {
  return host.starts_with("127.") || std::find(names.begin(), names.end(), host) != names.end();
}

ThisHost ProbeThisHost() {
  ThisHost host;
  host.name = HostName();
  host.names = {"localhost", "::1", host.name, host.name.substr(0, host.name.find('.'))};
  AddInterfaceAddresses(&host.names);
  host.gpu_count = CountNumbered("/dev", "nvidia");
  host.numa_node_count = std::max(1, CountNumbered("/sys/devices/system/node", "node"));
  host.cores = UsableCores();
  return host;
}

}  // namespace ds::cli
