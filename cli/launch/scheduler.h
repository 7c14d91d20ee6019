#pragma once

// Allocations of schedulers and copies of other launchers, as the environment tells of them. dsrun
// takes its hosts from a hostfile only; one notice says so where the environment names more.
//
// Pure but for reading $PBS_NODEFILE. Threads: safe from any.

#include <string>
#include <vector>

#include "cli/launch/launch_plan.h"

namespace ds::cli {

// Notices for a job in this environment. Without a hostfile: an allocation of several hosts (Slurm,
// PBS, LSF, Grid Engine, a Kubernetes training job), with a command that writes the hostfile. With
// one or without: srun or mpirun has started this command several times, and each is a job.
std::vector<std::string> DescribeAllocation(const Environment& shell, bool has_hostfile);

}  // namespace ds::cli
