#pragma once

// Selects the slots of the pool for a job: --include, --exclude, --num_nodes, --num_gpus.
//
//     FILTER    = NODE {"@" NODE}
//     NODE      = HOST [":" SLOTS {"," SLOTS}]        a bare host means all its slots
//     SLOTS     = number | first "-" last
//
// The result is in pool order, regardless of the filter's order. Slots of a repeated host add up; a
// host named both bare and with slots keeps the slots. A name that matches a host of the pool
// exactly is that host, even if it contains ':' (IPv6). A filter that selects nothing or more than
// available is an error.
//
// Pure; safe from any thread.

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// The slots of one host. `devices` has each slot's device in the format of the visible-devices
// variable ("0", a GPU's UUID); empty if the ranks use none.
struct HostSlots {
  std::string host;
  std::vector<int> slots;
  std::vector<std::string> devices;

  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

struct ResourceRequest {
  std::string include;
  std::string exclude;
  std::optional<int> num_nodes;
  std::optional<int> num_gpus;
};

// Requires: the hosts of `pool` differ; `devices` is empty or as long as `slots`.
StatusOr<std::vector<HostSlots>> SelectSlots(const std::vector<HostSlots>& pool,
                                             const ResourceRequest& request);

}  // namespace ds::cli
