#pragma once

// LaunchPlan is the world that launch flags ask for: hostfile or this host, filters, cores. It
// contacts nobody, and where a hostfile is given judges nothing by this machine's own cores or
// devices.
//
// Threads: a plain value.

#include <string>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/plan/hostfile.h"
#include "cli/plan/this_host.h"
#include "cli/plan/world_plan.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct LaunchPlan {
  WorldPlan world;
  std::vector<JobHost> spares;  // take part only when another host is lost, the first first
  bool from_hostfile = false;
};

// `visible_devices` is CUDA_VISIBLE_DEVICES of dsrun's environment, null when unset: without a
// hostfile its devices are the slots, in their order.
StatusOr<LaunchPlan> MakeLaunchPlan(const LaunchFlags& flags, const ThisHost& this_host,
                                    const char* visible_devices);

// Chooses what of this machine is probed because a plan for these flags depends on it.
Probe ProbeFor(const LaunchFlags& flags);

// Tells whether an entry is reached without SSH: its name means this machine and nothing in it
// (port, user, identity, exec) asks for another way in.
bool IsHere(const HostEntry& entry, const ThisHost& this_host);

// Readies the plan for launching from this machine: tells the hosts that are this machine from the
// others.
void PlaceHosts(const ThisHost& this_host, LaunchPlan* plan);

// MakeLaunchPlan and PlaceHosts with what this process sees.
StatusOr<LaunchPlan> PlanFromThisHost(const LaunchFlags& flags);

// Turns what stands behind the launch flags into what the ranks execute: a Python program gets its
// interpreter, anything else stays as it is.
std::vector<std::string> MakeProgramCommand(const LaunchFlags& flags,
                                            const std::vector<std::string>& words);

// The script that MakeProgramCommand has found an interpreter for; "" when it is no file.
std::string FindProgramScript(const LaunchFlags& flags, const std::vector<std::string>& words);

}  // namespace ds::cli
