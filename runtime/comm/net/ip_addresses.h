#pragma once

// IP addresses of this host and of others: which ones a rank offers, and in which order the others
// try them. No name is looked up.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::comm {

struct LocalAddress {
  std::string interface;  // "eth0"
  std::string text;       // "10.0.0.2", "fd00::2"
  int prefix = 0;         // bits of the network
  bool loopback = false;
  bool link_local = false;  // it means something on its own link only (fe80::1)
  int rail = 0;             // which of the networks that carry bytes at the same time it is in
};

// Those of interfaces that are up.
StatusOr<std::vector<LocalAddress>> ListLocalAddresses();

// Those that a rank offers: of the interface, or the one address, that `wanted` names; without it
// all but loopback ones, or these where there are no others. A list ("eth0,eth1") names the rails,
// in the order of all hosts (peer_rails.h). Link-local ones are never offered: another host cannot
// know over which of its interfaces it would reach them. kNotFound, with what there is, when
// nothing fits; kInvalidArgument for a list that names an interface twice; kFailedPrecondition when
// there are too many for the ranks to tell each other. Pure.
StatusOr<std::vector<LocalAddress>> ChooseAddresses(const std::vector<LocalAddress>& all,
                                                    const std::string& wanted);

// Refuses RDMA devices among the names of such a list ("mlx5_0", or "mlx5_0:1" as UCX writes it),
// which carry nothing of CPU ranks: kUnimplemented tells which interfaces lead to their network.
// A name that a network interface has as well is the interface's.
// `root`: of the file system, but in tests.
Status RefuseRdmaDevices(const std::string& wanted, const std::filesystem::path& root = "/");

// One, unless they are of a list.
int CountRails(const std::vector<LocalAddress>& chosen);

// The other rank's addresses in the order in which to try them: those in a network that this host
// is in, then others, and last those that this host has, too (every host with containers has the
// same one for its bridge). Pure.
std::vector<std::string> OrderAddresses(const std::vector<LocalAddress>& mine,
                                        const std::vector<std::string>& theirs);

}  // namespace ds::comm
