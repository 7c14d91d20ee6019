#include "cli/job/memory_shortage.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/job/verdict/make_verdict.h"
#include "runtime/base/saturating.h"

namespace ds::cli {
namespace {

bool RunOnGpus(const JobPlan& job, const v1::PrepareResponse& answer) {
  return job.flags.device == Device::kCuda ||
         (job.flags.device == Device::kAuto && answer.ranks_on_gpus());
}

// Fills in what the ranks need.
JobOutcome Judge(const ShortageQuestion& question, std::int64_t shared, MemoryShortage shortage) {
  const bool on_gpus = RunOnGpus(question.job, question.answer);
  const MemoryNeed& memory = question.job.purpose.memory;
  const MemoryNeed::OfRank& need = on_gpus ? memory.on_gpu : memory.on_cpu;
  shortage.rank_bytes = need.bytes;
  shortage.needed = shared + SaturatingProduct(shortage.ranks, need.bytes);
  shortage.parts = need.parts;
  const bool is_known = need.bytes > 0 && shortage.available > 0;
  if (!is_known || shortage.needed <= shortage.available) return JobOutcome();
  const std::int64_t left = std::max<std::int64_t>(0, shortage.available - shared);
  return MakeMemoryVerdict(question.host.host, shortage,
                           question.program.AdviseOnMemory(left / shortage.ranks, on_gpus));
}

}  // namespace

JobOutcome CheckHostMemory(const ShortageQuestion& question) {
  return Judge(question, question.job.purpose.memory.shared_bytes,
               {.ranks = question.host.rank_count(),
                .available = static_cast<std::int64_t>(question.answer.available_memory())});
}

JobOutcome CheckNodeMemory(const ShortageQuestion& question) {
  const JobHost& host = question.host;
  std::map<std::vector<int>, int> bound;  // ranks, by the nodes whose memory is theirs
  for (int i = 0; i < host.rank_count(); ++i) {
    const MemoryPolicy& policy =
        question.job.world.ranks[static_cast<std::size_t>(host.first_rank + i)].memory;
    if (policy.kind == MemoryPolicy::Kind::kBind) ++bound[policy.nodes];
  }
  for (const auto& [nodes, ranks] : bound) {
    MemoryShortage shortage{.ranks = ranks};
    for (const v1::NumaNode& node : question.answer.numa_nodes()) {
      const auto id = static_cast<int>(node.id());
      if (std::find(nodes.begin(), nodes.end(), id) == nodes.end()) continue;
      shortage.available += static_cast<std::int64_t>(node.memory_bytes());
      shortage.nodes += (shortage.nodes.empty() ? "" : ",") + std::to_string(id);
    }
    // Pages that ranks share are on any node.
    JobOutcome fits = Judge(question, /*shared=*/0, std::move(shortage));
    if (!fits.ok()) return fits;
  }
  return JobOutcome();
}

}  // namespace ds::cli
