#pragma once

// FindSameMachines finds hosts of a job that are second names of a machine: their ranks would use
// the same devices and cores. A job and a report judge it alike.
//
// Pure; thread-safe.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "cli/job/verdict/verdict.h"

namespace ds::cli {

struct HostMachine {
  std::string host;     // as spelt in the hostfile
  std::string machine;  // HostFacts.machine; "" = unknown, or not to be compared
};

// Returns a verdict for each host that is the same machine as an earlier one, by its index.
// `hostfile` is for the message.
std::map<std::size_t, Verdict> FindSameMachines(const std::vector<HostMachine>& hosts,
                                                const std::string& hostfile);

}  // namespace ds::cli
