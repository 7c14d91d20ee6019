#include "cli/plan/this_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string>

#include "runtime/base/files.h"

namespace ds::cli {
namespace {

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

}  // namespace

bool ThisHost::IsNamed(std::string_view host) const {
  in_addr address{};
  const bool is_loopback = ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
                           (ntohl(address.s_addr) >> IN_CLASSA_NSHIFT) == IN_LOOPBACKNET;
  return is_loopback || std::find(names.begin(), names.end(), host) != names.end();
}

ThisHost ProbeThisHost(const Probe& probe) {
  ThisHost host;
  host.name = HostName();
  host.names = {"localhost", "::1", host.name, host.name.substr(0, host.name.find('.'))};
  if (probe.addresses) AddInterfaceAddresses(&host.names);
  host.gpu_count = CountNumbered("/dev", "nvidia");
  host.numa_node_count = std::max(1, CountNumbered("/sys/devices/system/node", "node"));
  if (probe.cores) host.topology = ReadCpuTopology();
  return host;
}

}  // namespace ds::cli
