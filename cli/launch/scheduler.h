#pragma once

// Detection of scheduler allocations and of repeated starts by other launchers, from environment
// variables. dsrun takes its hosts from a hostfile only; a notice says so if the environment lists
// more.
//
// Pure except reading $PBS_NODEFILE. Safe from any thread.

#include <string>
#include <vector>

#include "cli/launch/launch_plan.h"

namespace ds::cli {

// Returns notices for a job in this environment. Without a hostfile: an allocation of several hosts
// (Slurm, PBS, LSF, Grid Engine, a Kubernetes training job), with a command that writes the
// hostfile. In all cases: srun or mpirun has started this command several times, and each copy is a
// separate job.
std::vector<std::string> DescribeAllocation(const Environment& shell, bool has_hostfile);

}  // namespace ds::cli
