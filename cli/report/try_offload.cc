#include "cli/report/try_offload.h"

#include "runtime/offload/file_tier.h"

namespace ds::cli {

v1::OffloadFacts TryOffload(const std::filesystem::path& folder) {
  v1::OffloadFacts facts;
  const auto tier = offload::FileTier::Open({.folders = {folder}});
  if (!tier.ok()) {
    facts.set_problem(tier.status().message());
    return facts;
  }
  const offload::FolderFacts& found = (*tier)->files().front().facts();
  facts.set_file_system(found.file_system);
  facts.set_in_memory(found.in_memory);
  facts.set_direct(found.direct);
  facts.set_why_not_ring((*tier)->why_not_ring());
  return facts;
}

}  // namespace ds::cli
