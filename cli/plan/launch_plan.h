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
};

// `visible_devices` is CUDA_VISIBLE_DEVICES of dsrun's environment, null when unset: without a
// hostfile its devices are the slots, in their order.
StatusOr<LaunchPlan> MakeLaunchPlan(const LaunchFlags& flags, const ThisHost& this_host,
                                    const char* visible_devices);

// Readies the plan for launching on this machine: refuses hosts that are not it and per-host keys
// that are not honoured, and binds cores that depend on the machine.
Status PlaceOnThisHost(const LaunchFlags& flags, const ThisHost& this_host, LaunchPlan* plan);

// MakeLaunchPlan and PlaceOnThisHost with what this process sees.
StatusOr<LaunchPlan> PlanOnThisHost(const LaunchFlags& flags);

// What stands behind the launch flags as the ranks execute it: a Python program gets its
// interpreter, anything else stays as it is.
std::vector<std::string> ProgramCommand(const LaunchFlags& flags,
                                        const std::vector<std::string>& words);

}  // namespace ds::cli
