#pragma once

// Selects the IP addresses that a rank offers, and the order in which other ranks try them. No name
// is looked up.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::comm {

struct LocalAddress {
  std::string interface;  // "eth0"
  std::string text;       // "10.0.0.2", "fd00::2"
  int prefix = 0;         // prefix length of the network in bits
  bool loopback = false;
  bool link_local = false;  // valid only on its own link (fe80::1)
  int rail = 0;             // index of its network among those used in parallel
};

// Returns the addresses of interfaces that are up.
StatusOr<std::vector<LocalAddress>> ListLocalAddresses();

// Returns the addresses that a rank offers: those of the interface, or the one address, that
// `wanted` names. If `wanted` is empty: all except loopback, or loopback if there are no others. A
// list ("eth0,eth1") names the rails, in the same order on all hosts (peer_rails.h). Link-local
// addresses are never offered: another host cannot know which of its interfaces reaches them.
// Returns kNotFound, with the available addresses, if nothing matches; kInvalidArgument for a list
// that names an interface twice; kFailedPrecondition if there are too many addresses to publish.
// Pure.
StatusOr<std::vector<LocalAddress>> ChooseAddresses(const std::vector<LocalAddress>& all,
                                                    const std::string& wanted);

// Rejects RDMA devices in such a list ("mlx5_0", or "mlx5_0:1" in UCX's notation), which CPU ranks
// cannot use. Returns kUnimplemented with the interfaces of the same network. A name that is also a
// network interface is accepted. `root` is the root of the file system; only tests change it.
Status RefuseRdmaDevices(const std::string& wanted, const std::filesystem::path& root = "/");

// Returns the number of rails: 1 unless the addresses came from a list.
int CountRails(const std::vector<LocalAddress>& chosen);

// Returns the other rank's addresses in the order in which to try them: first those in a network of
// this host, then others, and last those that this host has too (for example the container bridge,
// which has the same address on every host). Pure.
std::vector<std::string> OrderAddresses(const std::vector<LocalAddress>& mine,
                                        const std::vector<std::string>& theirs);

}  // namespace ds::comm
