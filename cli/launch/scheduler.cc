#include "cli/launch/scheduler.h"

#include <cstdint>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "cli/launch/environment.h"
#include "runtime/base/files.h"
#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

std::string ValueOf(const Environment& shell, std::string_view name) {
  const std::string* const value = FindVariable(shell, name);
  return value == nullptr ? "" : *value;
}

int NumberOf(const Environment& shell, std::string_view name) {
  return ParseNumber<int>(ValueOf(shell, name)).value_or(0);
}

// An allocation of several hosts, and the variable that shows it.
struct Allocation {
  std::string fact;     // "SLURM_NNODES=4"
  std::string command;  // writes `hostfile`
  int hosts = 0;
};

// Returns the slots of a host from the variables: a number, or N for the user to fill in.
std::string SlotsOf(const Environment& shell, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const int number = NumberOf(shell, name); number > 0) return std::to_string(number);
  }
  return "N";
}

Allocation FindSlurm(const Environment& shell) {
  if (ValueOf(shell, "SLURM_JOB_ID").empty()) return {};
  const char* const name =
      NumberOf(shell, "SLURM_NNODES") > 0 ? "SLURM_NNODES" : "SLURM_JOB_NUM_NODES";
  const int hosts = NumberOf(shell, name);
  return {std::string(name) + "=" + std::to_string(hosts),
          "scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed 's/$/ slots=" +
              SlotsOf(shell, {"SLURM_GPUS_ON_NODE", "SLURM_NTASKS_PER_NODE"}) + "/' >hostfile",
          hosts};
}

Allocation FindPbs(const Environment& shell) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 24;
  const std::string path = ValueOf(shell, "PBS_NODEFILE");
  if (path.empty()) return {};
  const StatusOr<std::string> text = ReadFile(path, kMostBytes);
  std::set<std::string> hosts;
  int lines = 0;
  std::istringstream words(text.ok() ? *text : "");
  for (std::string host; words >> host; ++lines) hosts.insert(host);
  const int count = static_cast<int>(hosts.size());
  const bool line_per_slot = lines > count;
  return {"PBS_NODEFILE names " + std::to_string(count) + " hosts",
          line_per_slot ? "cp \"$PBS_NODEFILE\" hostfile"
                        : "sed 's/$/ slots=" + SlotsOf(shell, {"PBS_NUM_PPN", "NCPUS"}) +
                              "/' \"$PBS_NODEFILE\" >hostfile",
          count};
}

// Reads "hostA 8 hostB 8".
Allocation FindLsf(const Environment& shell) {
  std::istringstream words(ValueOf(shell, "LSB_MCPU_HOSTS"));
  int hosts = 0;
  std::string host, slots;
  while (words >> host >> slots) ++hosts;
  return {"LSB_MCPU_HOSTS names " + std::to_string(hosts) + " hosts",
          "echo $LSB_MCPU_HOSTS | xargs -n 2 printf '%s slots=%s\\n' >hostfile", hosts};
}

Allocation FindGridEngine(const Environment& shell) {
  if (ValueOf(shell, "PE_HOSTFILE").empty()) return {};
  const int hosts = NumberOf(shell, "NHOSTS");
  return {"NHOSTS=" + std::to_string(hosts),
          "awk '{ print $1, \"slots=\" $2 }' \"$PE_HOSTFILE\" >hostfile", hosts};
}

std::string DescribeHosts(const Allocation& found) {
  return found.fact + ": this job uses this host only; for all of them: " + found.command +
         " && dsrun --hostfile hostfile ...";
}

// Operators of training jobs start one process per pod and set torchrun's variables.
std::string DescribePod(const Environment& shell) {
  const int world_size = NumberOf(shell, "WORLD_SIZE");
  const bool in_pod = !ValueOf(shell, "KUBERNETES_SERVICE_HOST").empty();
  if (!in_pod || world_size <= 1 || ValueOf(shell, "MASTER_ADDR").empty()) return "";
  return "WORLD_SIZE=" + std::to_string(world_size) +
         ": this job uses this pod only, and each pod starts a job of its own; start dsrun in one "
         "pod, with a --hostfile of lines 'POD slots=N' and sshd in the others";
}

// Describes a launcher that has started this command several times, with their number.
std::string DescribeCopies(const Environment& shell) {
  struct Launcher {
    const char* variable;
    const char* name;
  };
  for (const Launcher& each :
       {Launcher{"SLURM_STEP_NUM_TASKS", "srun"}, Launcher{"OMPI_COMM_WORLD_SIZE", "mpirun"},
        Launcher{"PMI_SIZE", "mpiexec"}}) {
    const int copies = NumberOf(shell, each.variable);
    if (copies <= 1) continue;
    return std::string(each.variable) + "=" + std::to_string(copies) + ": " + each.name +
           " starts this command " + std::to_string(copies) +
           " times, and each starts a job of its own; start dsrun once, without " + each.name;
  }
  return "";
}

}  // namespace

std::vector<std::string> DescribeAllocation(const Environment& shell, bool has_hostfile) {
  std::vector<std::string> notices;
  if (std::string copies = DescribeCopies(shell); !copies.empty()) {
    notices.push_back(std::move(copies));
  }
  if (has_hostfile) return notices;
  for (const auto find : {FindSlurm, FindPbs, FindLsf, FindGridEngine}) {
    const Allocation found = find(shell);
    if (found.hosts <= 1) continue;
    notices.push_back(DescribeHosts(found));
    return notices;
  }
  if (std::string pod = DescribePod(shell); !pod.empty()) notices.push_back(std::move(pod));
  return notices;
}

}  // namespace ds::cli
