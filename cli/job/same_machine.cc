#include "cli/job/same_machine.h"

#include "cli/job/verdict/make_verdict.h"

namespace ds::cli {

std::map<std::size_t, Verdict> FindSameMachines(const std::vector<HostMachine>& hosts,
                                                const std::string& hostfile) {
  std::map<std::string, std::string> known;  // the first name of each machine
  std::map<std::size_t, Verdict> same;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].machine.empty()) continue;
    const auto [first, is_new] = known.emplace(hosts[i].machine, hosts[i].host);
    if (!is_new) same.emplace(i, MakeSameMachineVerdict(first->second, hosts[i].host, hostfile));
  }
  return same;
}

}  // namespace ds::cli
