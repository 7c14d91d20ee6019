#include "cli/job/memory_shortage.h"

#include <algorithm>
#include <string>

#include "cli/job/verdict/make_verdict.h"

namespace ds::cli {

std::optional<Verdict> FindMemoryShortage(const JobPlan& job, const Program& program,
                                          const JobHost& host, const v1::PrepareResponse& answer) {
  const MemoryNeed& need = job.purpose.memory;
  const auto available = static_cast<std::int64_t>(answer.available_memory());
  const std::int64_t needed = need.shared_bytes + host.rank_count() * need.rank_bytes;
  const bool on_gpus = job.flags.device == Device::kCuda ||
                       (job.flags.device == Device::kAuto && answer.gpu_count() > 0);
  const bool is_known = need.rank_bytes > 0 && available > 0;
  if (on_gpus || !is_known || needed <= available) return std::nullopt;
  return MakeMemoryVerdict(
      host.host,
      {.ranks = host.rank_count(),
       .rank_bytes = need.rank_bytes,
       .needed = needed,
       .available = available,
       .parts = need.parts},
      program.AdviseOnMemory(std::max<std::int64_t>(0, available - need.shared_bytes) /
                             host.rank_count()));
}

}  // namespace ds::cli
