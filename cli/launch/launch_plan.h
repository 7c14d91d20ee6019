#pragma once

// LaunchPlan is the world that launch flags ask for, every rank, where it runs and with what: from
// a hostfile or this host, by filters and cores. It contacts nobody, and where a hostfile is given
// judges nothing by this machine's own cores or devices: cores of a host that nobody has asked yet
// are empty.
//
// Ranks are numbered host by host in pool order; the local rank is the index within the host.
//
// Pure but for ProbeThisHost and PlanFromThisHost. Threads: plain values; safe from any.

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

// A host that takes part from the start, or a spare, and all that is known of it before anybody has
// contacted it.
struct JobHost {
  std::string host;  // as spelt in the hostfile
  std::vector<int> slots;
  std::vector<std::string> devices;  // of the slots; empty when the ranks use none
  int first_rank = 0;                // a spare's is that of the host whose place it takes
  HostEntry entry;                   // made up without a hostfile
  // It is reached over SSH, and its ranks do not inherit the environment of dsrun.
  bool remote = false;
  std::string working_directory;
  Environment exports;        // over its own environment
  bool sets_threads = false;  // its ranks find OMP_NUM_THREADS in one of the two

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

// Requires: every host has a slot.
WorldPlan PlanWorld(const std::vector<HostSlots>& selected);

// The cores of a host that ranks can be bound to.
struct HostCores {
  std::vector<int> cores;       // to be divided; ascending
  std::vector<NumaNode> nodes;  // none when not known
};

// Divides the cores of host `node_rank` among its ranks, and chooses the memory that belongs to
// each share.
Status BindCores(const HostCores& host, int node_rank, WorldPlan* plan);

// Facts that dsrun knows of the machine it runs on without asking a daemon.
struct ThisHost {
  std::string name;                // as gethostname(2) says
  std::vector<std::string> names;  // every name that means this machine; with Probe::addresses
                                   // also its addresses
  int gpu_count = 0;               // NVIDIA devices the kernel shows
  int numa_node_count = 1;
  CpuTopology topology;  // with Probe::cores

  // "localhost", any 127.0.0.0/8 address, "::1", the host's own name (with or without its domain)
  // and, where they were asked for, its addresses.
  bool IsNamed(std::string_view host) const;
};

// The facts that are asked for only where they matter: it takes a file per cpu, and a dialogue with
// the kernel.
struct Probe {
  bool cores = false;
  bool addresses = false;
};
ThisHost ProbeThisHost(const Probe& probe);

struct LaunchPlan {
  WorldPlan world;
  std::vector<JobHost> spares;  // take part only when another host is lost, the first first
  bool from_hostfile = false;
  LogFilter shown;  // whose ranks are all of this world
};

// `visible_devices` is CUDA_VISIBLE_DEVICES of dsrun's environment, null when unset: without a
// hostfile its devices are the slots, in their order.
StatusOr<LaunchPlan> MakeLaunchPlan(const LaunchFlags& flags, const ThisHost& this_host,
                                    const char* visible_devices);

// Chooses what of this machine is probed because a plan for these flags depends on it.
Probe ChooseProbe(const LaunchFlags& flags);

// Tells whether an entry is reached without SSH: its name means this machine and nothing in it
// (port, user, identity, exec) asks for another way in.
bool IsHere(const HostEntry& entry, const ThisHost& this_host);

// Readies the plan for launching from this machine: tells the hosts that are this machine from the
// others.
void PlaceHosts(const ThisHost& this_host, LaunchPlan* plan);

// MakeLaunchPlan and PlaceHosts with what this process sees.
StatusOr<LaunchPlan> PlanFromThisHost(const LaunchFlags& flags);

}  // namespace ds::cli
