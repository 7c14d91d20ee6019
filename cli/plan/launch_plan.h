#pragma once

// From launch flags to the world: hostfile or this host, filters, cores. Contacts nobody, and where
// a hostfile is given judges nothing by this machine's own cores or devices.
//
// Threads: a plain value.

#include <string>
#include <vector>

#include "cli/launch_flags.h"
#include "cli/plan/hostfile.h"
#include "cli/plan/this_host.h"
#include "cli/plan/world_plan.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct LaunchPlan {
  WorldPlan world;
  std::vector<HostEntry> entries;  // of world.hosts, index by index; made up without a hostfile
  bool from_hostfile = false;
  // By host: it is this machine, where the daemon is a child and no SSH is needed. PlaceHosts fills
  // it.
  std::vector<bool> here;
};

// `visible_devices` is CUDA_VISIBLE_DEVICES of dsrun's environment, null when unset: without a
// hostfile its devices are the slots, in their order.
StatusOr<LaunchPlan> MakeLaunchPlan(const LaunchFlags& flags, const ThisHost& this_host,
                                    const char* visible_devices);

// Whether an entry is reached without SSH: its name means this machine and nothing in it (port,
// user, identity, exec) asks for another way in.
bool IsHere(const HostEntry& entry, const ThisHost& this_host);

// Readies the plan for launching from this machine: tells the hosts that are this machine from the
// others and refuses per-host keys that are not honoured.
Status PlaceHosts(const ThisHost& this_host, LaunchPlan* plan);

// MakeLaunchPlan and PlaceHosts with what this process sees.
StatusOr<LaunchPlan> PlanFromThisHost(const LaunchFlags& flags);

// What stands behind the launch flags as the ranks execute it: a Python program gets its
// interpreter, anything else stays as it is.
std::vector<std::string> ProgramCommand(const LaunchFlags& flags,
                                        const std::vector<std::string>& words);

}  // namespace ds::cli
