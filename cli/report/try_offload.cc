#include "cli/report/try_offload.h"

#include "runtime/offload/file_tier.h"

namespace ds::cli {

OffloadFacts TryOffload(const std::filesystem::path& folder) {
  const auto tier = offload::FileTier::Open({.folders = {folder}});
  if (!tier.ok()) return {.problem = tier.status().message()};
  const offload::FolderFacts& facts = (*tier)->files().front().facts();
  return {.problem = {},
          .file_system = facts.file_system,
          .in_memory = facts.in_memory,
          .direct = facts.direct,
          .why_not_ring = (*tier)->why_not_ring()};
}

}  // namespace ds::cli
