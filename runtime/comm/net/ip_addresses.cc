#include "runtime/comm/net/ip_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

namespace ds::comm {
namespace {

// A rank's record must fit in a line of the rank link (base/rank_link.h), and each address takes a
// socket.
constexpr std::size_t kMostAddresses = 256;

// Returns the bytes of an address, 4 or 16; none if the text is not an address.
std::optional<std::vector<std::uint8_t>> ParseAddress(const std::string& text) {
  for (const auto& [family, size] : {std::pair(AF_INET, 4), std::pair(AF_INET6, 16)}) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
    if (::inet_pton(family, text.c_str(), bytes.data()) == 1) return bytes;
  }
  return std::nullopt;
}

std::vector<std::uint8_t> BytesOf(const sockaddr& address) {
  const bool v4 = address.sa_family == AF_INET;
  const void* const raw =
      v4 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
         : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  const auto* const begin = static_cast<const std::uint8_t*>(raw);
  return {begin, begin + (v4 ? 4 : 16)};
}

std::string TextOf(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const std::vector<std::uint8_t> bytes = BytesOf(address);
  ::inet_ntop(address.sa_family, bytes.data(), text.data(), text.size());
  return text.data();
}

bool IsUsable(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return false;
  return entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6;
}

bool IsLinkLocal(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool IsInNetwork(const LocalAddress& mine, const std::string& theirs) {
  const auto a = ParseAddress(mine.text);
  const auto b = ParseAddress(theirs);
  if (!a || !b || a->size() != b->size()) return false;
  for (int bit = 0; bit < mine.prefix; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const int shift = 7 - bit % 8;
    if (((*a)[byte] >> shift & 1) != ((*b)[byte] >> shift & 1)) return false;
  }
  return true;
}

}  // namespace

StatusOr<std::vector<LocalAddress>> ListLocalAddresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return ErrnoError(errno, "listing network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<LocalAddress> addresses;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (!IsUsable(*entry)) continue;
    int prefix = 0;
    if (entry->ifa_netmask != nullptr) {
      entry->ifa_netmask->sa_family = entry->ifa_addr->sa_family;
      for (const std::uint8_t byte : BytesOf(*entry->ifa_netmask)) prefix += std::popcount(byte);
    }
    addresses.push_back({.interface = entry->ifa_name,
                         .text = TextOf(*entry->ifa_addr),
                         .prefix = prefix,
                         .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                         .link_local = IsLinkLocal(*entry->ifa_addr)});
  }
  return addresses;
}

namespace {

// Returns the addresses of one network: of the interface or the address `wanted`, or all if it is
// empty.
StatusOr<std::vector<LocalAddress>> ChooseOfNetwork(const std::vector<LocalAddress>& all,
                                                    const std::string& wanted) {
  std::vector<LocalAddress> chosen;
  std::string known;
  const bool only_loopback = std::all_of(all.begin(), all.end(), [](const LocalAddress& each) {
    return each.loopback || each.link_local;
  });
  for (const LocalAddress& each : all) {
    known += (known.empty() ? "" : ", ") + each.interface + " " + each.text +
             (each.link_local ? " (link-local, which leads no rank here)" : "");
    if (each.link_local) continue;
    const bool fits = wanted.empty() ? only_loopback || !each.loopback
                                     : wanted == each.interface || wanted == each.text;
    if (fits) chosen.push_back(each);
  }
  if (!chosen.empty()) return chosen;
  const std::string there = known.empty() ? "it has none" : "it has " + known;
  if (wanted.empty()) return NotFoundError("this host has no network address that is up");
  return NotFoundError("this host has no network interface or address " + wanted + "; " + there);
}

std::vector<std::string> SplitAtCommas(const std::string& list) {
  std::vector<std::string> names(1);
  for (const char c : list) {
    if (c == ',') {
      names.emplace_back();
    } else {
      names.back().push_back(c);
    }
  }
  return names;
}

std::set<std::string> NamesIn(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace

Status RefuseRdmaDevices(const std::string& wanted, const std::filesystem::path& root) {
  const std::filesystem::path folder = root / "sys/class/infiniband";
  const std::set<std::string> devices = NamesIn(folder);
  // By default udev gives an InfiniBand device and its interface the same name.
  const std::set<std::string> interfaces_here = NamesIn(root / "sys/class/net");
  for (const std::string& name : SplitAtCommas(wanted)) {
    const std::string device = name.substr(0, name.find(':'));
    if (!devices.contains(device) || interfaces_here.contains(name)) continue;
    std::string interfaces;
    for (const std::string& each : NamesIn(folder / device / "device/net")) {
      interfaces += (interfaces.empty() ? "" : " or ") + each;
    }
    return UnimplementedError(device +
                              " is an RDMA device. CPU ranks use TCP: its connections are "
                              "authenticated, and encrypted with --encrypt. RDMA can do neither: " +
                              (interfaces.empty()
                                   ? "it has no network interface for TCP, name another one"
                                   : "--interface " + interfaces + " uses TCP over its network") +
                              ". NCCL finds the device itself, or by NCCL_IB_HCA");
  }
  return OkStatus();
}

StatusOr<std::vector<LocalAddress>> ChooseAddresses(const std::vector<LocalAddress>& all,
                                                    const std::string& wanted) {
  std::vector<LocalAddress> chosen;
  const std::vector<std::string> names = SplitAtCommas(wanted);
  std::set<std::string> interfaces;
  for (int rail = 0; rail < static_cast<int>(names.size()); ++rail) {
    const std::string& name = names[static_cast<std::size_t>(rail)];
    if (name.empty() && names.size() > 1) {
      return InvalidArgumentError("'" + wanted +
                                  "' is not a list of interfaces, such as eth0,eth1");
    }
    DS_ASSIGN_OR_RETURN(std::vector<LocalAddress> of_rail, ChooseOfNetwork(all, name));
    if (!interfaces.insert(of_rail[0].interface).second) {
      return InvalidArgumentError("'" + wanted + "' names the interface " + of_rail[0].interface +
                                  " twice");
    }
    for (LocalAddress& each : of_rail) {
      each.rail = rail;
      chosen.push_back(std::move(each));
    }
  }
  if (chosen.size() > kMostAddresses) {
    return FailedPreconditionError("this host has " + std::to_string(chosen.size()) +
                                   " network addresses, and a rank offers at most " +
                                   std::to_string(kMostAddresses) +
                                   ": --interface names the network that all hosts share");
  }
  return chosen;
}

int CountRails(const std::vector<LocalAddress>& chosen) {
  int count = 0;
  for (const LocalAddress& each : chosen) count = std::max(count, each.rail + 1);
  return count;
}

std::vector<std::string> OrderAddresses(const std::vector<LocalAddress>& mine,
                                        const std::vector<std::string>& theirs) {
  const auto rank = [&](const std::string& address) {
    bool near = false;
    for (const LocalAddress& own : mine) {
      if (own.text == address) return 2;
      near = near || IsInNetwork(own, address);
    }
    return near ? 0 : 1;
  };
  std::vector<std::string> ordered = theirs;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
  return ordered;
}

}  // namespace ds::comm
