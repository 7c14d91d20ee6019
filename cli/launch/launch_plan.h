#pragma once

// LaunchPlan is the world that the launch flags request: every rank with its host, slot and cores.
// It is computed from a hostfile or from this host, with filters applied. Planning contacts no
// other host. With a hostfile, it ignores this machine's cores and devices; cores of hosts without
// a reply yet are empty.
//
// Ranks are numbered host by host in pool order; the local rank is the index within the host.
//
// Pure except ProbeThisHost and PlanFromThisHost. Plain values; safe from any thread.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/flags/log_filter.h"
#include "cli/launch/hostfile.h"
#include "cli/launch/memory_policy.h"
#include "cli/launch/resource_filter.h"
#include "runtime/base/status.h"
#include "runtime/process/cpu_topology.h"

namespace ds::cli {

using Environment = std::vector<std::pair<std::string, std::string>>;

// A host that takes part from the start, or a spare, with all data known before dsrun contacts it.
struct JobHost {
  std::string host;  // spelled as in the hostfile
  std::vector<int> slots;
  std::vector<std::string> devices;  // of the slots; empty when the ranks use none
  int first_rank = 0;                // for a spare: the first rank of the host that it replaces
  HostEntry entry;                   // synthesized without a hostfile
  // True if the host is reached over SSH. Its ranks then do not inherit dsrun's environment.
  bool remote = false;
  std::string working_directory;
  Environment exports;        // added to the host's own environment
  bool sets_threads = false;  // OMP_NUM_THREADS is set in its environment or in `exports`

  int rank_count() const { return static_cast<int>(slots.size()); }
};

struct PlannedRank {
  int rank = 0;
  int node_rank = 0;  // index into WorldPlan::hosts
  int local_rank = 0;
  int slot = 0;
  std::vector<int> cores;  // empty = not bound
  MemoryPolicy memory;
};

struct WorldPlan {
  std::vector<JobHost> hosts;
  std::vector<PlannedRank> ranks;

  int world_size() const { return static_cast<int>(ranks.size()); }
  const JobHost& host_of(const PlannedRank& rank) const { return hosts[rank.node_rank]; }
};

// Requires: every host has at least one slot.
WorldPlan PlanWorld(const std::vector<HostSlots>& selected);

// The cores of a host that are available for binding.
struct HostCores {
  std::vector<int> cores;       // to divide among the ranks; ascending
  std::vector<NumaNode> nodes;  // empty if not known
};

// Divides the cores of host `node_rank` among its ranks and chooses the NUMA memory for each share.
Status BindCores(const HostCores& host, int node_rank, WorldPlan* plan);

// Facts about this machine that dsrun reads without asking a daemon.
struct ThisHost {
  std::string name;                // from gethostname(2)
  std::vector<std::string> names;  // every name that means this machine; with Probe::addresses
                                   // also its addresses
  int gpu_count = 0;               // NVIDIA devices that the kernel lists
  int numa_node_count = 1;
  CpuTopology topology;  // with Probe::cores

  // Returns true for "localhost", any 127.0.0.0/8 address, "::1", and the host's own name with or
  // without its domain. With Probe::addresses it also returns true for the host's addresses.
  bool IsNamed(std::string_view host) const;
};

// Selects the expensive facts to probe. Cores cost one file per CPU, addresses a netlink dialogue
// with the kernel.
struct Probe {
  bool cores = false;
  bool addresses = false;
};
ThisHost ProbeThisHost(const Probe& probe);

struct LaunchPlan {
  WorldPlan world;
  std::vector<JobHost> spares;  // replace lost hosts, in this order
  bool from_hostfile = false;
  LogFilter shown;  // its ranks all exist in `world`
};

// `visible_devices` is CUDA_VISIBLE_DEVICES from dsrun's environment, null if unset. Without a
// hostfile, its devices are the slots, in their order.
StatusOr<LaunchPlan> MakeLaunchPlan(const LaunchFlags& flags, const ThisHost& this_host,
                                    const char* visible_devices);

// Chooses the facts of this machine that a plan for these flags depends on.
Probe ChooseProbe(const LaunchFlags& flags);

// Returns true if the entry is reached without SSH: its name means this machine, and no key (port,
// user, identity, exec, hostkey) requests another access.
bool IsHere(const HostEntry& entry, const ThisHost& this_host);

// Prepares the plan for launching from this machine: sets JobHost::remote for all other hosts.
void PlaceHosts(const ThisHost& this_host, LaunchPlan* plan);
// Refuses a plan with two names of this machine, unless --share_machine allows it. Requires:
// PlaceHosts was called. Two names of another machine are found when its daemons answer.
Status CheckNamesOfThisHost(const LaunchFlags& flags, const LaunchPlan& plan);

// Calls MakeLaunchPlan, PlaceHosts and CheckNamesOfThisHost with the facts and environment of this
// process.
StatusOr<LaunchPlan> PlanFromThisHost(const LaunchFlags& flags);

}  // namespace ds::cli
