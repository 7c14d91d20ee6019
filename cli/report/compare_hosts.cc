#include "cli/report/compare_hosts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "daemon/inspect/judge.h"
#include "daemon/inspect/read_host.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

std::string OrUnknown(const std::string& value) { return value.empty() ? "unknown" : value; }

std::string DescribeIf(bool known, const v1::Finding& finding) {
  return known ? finding.message() : "unknown";
}

std::string DescribeLimit(bool known, std::uint64_t limit) {
  if (!known) return "unknown";
  return limit == daemon::kUnlimited ? "unlimited" : std::to_string(limit);
}

std::string DescribeFolder(bool known, const v1::FolderFacts& folder) {
  if (!known) return "unknown";
  if (folder.missing()) return "not there";
  if (!folder.problem().empty()) return folder.problem();
  const std::string size = ByteSize(folder.total());
  return folder.file_system().empty() ? size : folder.file_system() + ", " + size;
}

std::string DescribeGpuMemory(const v1::HostFacts& facts) {
  if (facts.gpus().empty()) return daemon::HasNoGpus(facts) ? "none" : "unknown";
  std::string text;
  for (const v1::GpuFacts& gpu : facts.gpus()) {
    const std::string memory = gpu.has_memory() ? ByteSize(gpu.memory()) : "unknown";
    if (text.find(memory) == std::string::npos) text += (text.empty() ? "" : ", ") + memory;
  }
  return text;
}

struct ComparedFact {
  std::string_view name;
  std::string (*describe)(const HostReport& host);
};

// In the order of the report, by the names of its findings.
constexpr std::array<ComparedFact, 28> kFacts = {{
    {"dsrun", [](const HostReport& h) { return OrUnknown(h.facts.dsrun_version()); }},
    {"dsrank",
     [](const HostReport& h) {
       return h.facts.dsrank().problem().empty() ? OrUnknown(h.facts.dsrank().version())
                                                 : std::string("not usable");
     }},
    {"LibTorch", [](const HostReport& h) { return OrUnknown(h.facts.dsrank().libtorch()); }},
    {"Python",
     [](const HostReport& h) {
       return h.facts.python().problem().empty() ? OrUnknown(h.facts.python().version())
                                                 : std::string("not usable");
     }},
    {"torch",
     [](const HostReport& h) {
       if (!h.facts.python().problem().empty()) return std::string("unknown");
       return h.facts.python().torch().empty() ? std::string("none") : h.facts.python().torch();
     }},
    {"kernel", [](const HostReport& h) { return OrUnknown(h.facts.kernel()); }},
    {"system", [](const HostReport& h) { return OrUnknown(h.facts.system()); }},
    {"processor", [](const HostReport& h) { return OrUnknown(h.facts.processor().model()); }},
    {"features",
     [](const HostReport& h) {
       return DescribeIf(h.facts.has_processor(), daemon::JudgeFeatures(h.facts.processor()));
     }},
    {"AMX",
     [](const HostReport& h) {
       return DescribeIf(h.facts.has_processor(), daemon::JudgeAmx(h.facts));
     }},
    {"cores",
     [](const HostReport& h) {
       return DescribeIf(h.facts.has_processor(), daemon::JudgeCores(h.facts.processor()));
     }},
    {"NUMA",
     [](const HostReport& h) {
       return h.facts.has_processor() ? std::to_string(h.facts.processor().numa_nodes())
                                      : std::string("unknown");
     }},
    {"memory",
     [](const HostReport& h) {
       return h.facts.memory().has_total() ? ByteSize(h.facts.memory().total())
                                           : std::string("unknown");
     }},
    {"/dev/shm",
     [](const HostReport& h) {
       return DescribeFolder(h.facts.has_shared_memory(), h.facts.shared_memory());
     }},
    {"memlock",
     [](const HostReport& h) {
       return DescribeLimit(h.facts.limits().has_locked_memory(), h.facts.limits().locked_memory());
     }},
    {"nofile",
     [](const HostReport& h) {
       return DescribeLimit(h.facts.limits().has_open_files(),
                            daemon::RankOpenFiles(h.facts.limits()));
     }},
    {"nproc",
     [](const HostReport& h) {
       return DescribeLimit(h.facts.limits().has_processes(), h.facts.limits().processes());
     }},
    {"working_directory",
     [](const HostReport& h) {
       return DescribeFolder(h.facts.has_working_directory(), h.facts.working_directory());
     }},
    {"cache",
     [](const HostReport& h) { return DescribeFolder(h.facts.has_cache(), h.facts.cache()); }},
    {"GPUs", [](const HostReport& h) { return daemon::JudgeGpus(h.facts).message(); }},
    {"GPU memory", [](const HostReport& h) { return DescribeGpuMemory(h.facts); }},
    {"GPU users",
     [](const HostReport& h) {
       const bool known =
           !h.facts.gpus().empty() || !h.facts.gpu_problem().empty() || daemon::HasNoGpus(h.facts);
       return DescribeIf(known, daemon::JudgeGpuUsers(h.facts));
     }},
    {"GPU driver", [](const HostReport& h) { return daemon::JudgeDriver(h.facts).message(); }},
    {"CUDA", [](const HostReport& h) { return daemon::JudgeCuda(h.facts).message(); }},
    {"NCCL", [](const HostReport& h) { return daemon::JudgeNccl(h.facts).message(); }},
    {"network",
     [](const HostReport& h) {
       return DescribeIf(h.facts.has_infiniband_devices(), daemon::JudgeNetwork(h.facts));
     }},
    {"clock",
     [](const HostReport& h) {
       return daemon::JudgeClock(h.facts.unix_nanos(), h.unix_nanos).message();
     }},
    {"no answer",
     [](const HostReport& h) {
       return h.facts.unanswered().empty() ? std::string("none") : h.facts.unanswered(0).message();
     }},
}};

FactDifference Group(const ComparedFact& fact, const std::vector<HostReport>& hosts) {
  FactDifference difference{.name = std::string(fact.name), .groups = {}};
  for (const HostReport& host : hosts) {
    std::string value = fact.describe(host);
    const auto group =
        std::find_if(difference.groups.begin(), difference.groups.end(),
                     [&](const FactDifference::Group& each) { return each.value == value; });
    if (group != difference.groups.end()) {
      group->hosts.push_back(host.host);
    } else {
      difference.groups.push_back({std::move(value), {host.host}});
    }
  }
  return difference;
}

struct NumberedName {
  std::string_view stem;  // without the digits at the end
  std::string_view digits;
  std::uint64_t number = 0;
};

std::optional<NumberedName> SplitNumber(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  const std::size_t start = last == std::string_view::npos ? 0 : last + 1;
  const auto number = ParseNumber<std::uint64_t>(name.substr(start));
  if (!number) return std::nullopt;
  return NumberedName{name.substr(0, start), name.substr(start), *number};
}

// Returns whether `next` follows `name` in a numbering: h9 h10, or h09 h10, but not h9 h010.
bool Follows(const std::string& name, const std::string& next) {
  const auto one = SplitNumber(name);
  const auto other = SplitNumber(next);
  if (!one || !other || one->stem != other->stem || other->number != one->number + 1) return false;
  return one->digits.size() == other->digits.size() ||
         (one->digits.size() < other->digits.size() && other->digits[0] != '0');
}

}  // namespace

std::vector<FactDifference> CompareHosts(const std::vector<HostReport>& hosts) {
  std::vector<FactDifference> differences;
  for (const ComparedFact& fact : kFacts) {
    FactDifference difference = Group(fact, hosts);
    if (difference.groups.size() > 1) differences.push_back(std::move(difference));
  }
  return differences;
}

std::string FormatHostList(const std::vector<std::string>& hosts) {
  std::string text;
  for (std::size_t i = 0; i < hosts.size();) {
    std::size_t last = i;
    while (last + 1 < hosts.size() && Follows(hosts[last], hosts[last + 1])) ++last;
    if (last - i < 2) last = i;
    text += (text.empty() ? "" : ", ") + hosts[i] + (last == i ? "" : "-" + hosts[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace ds::cli
