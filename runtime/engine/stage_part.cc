#include "runtime/engine/stage_part.h"

#include <vector>

#include "runtime/engine/plan/stage_cut.h"

namespace ds::engine {

StatusOr<std::optional<models::StagePart>> FindStagePart(const topology::Mesh& mesh, int rank,
                                                         const models::DecoderSpec& model,
                                                         const config::DsConfig& config) {
  const int stages = mesh.degrees().pipeline;
  if (stages == 1) return std::optional<models::StagePart>();
  DS_ASSIGN_OR_RETURN(const std::vector<int> cut, CutStages(model, config));
  const int stage = mesh.MemberOf(rank, {topology::Axis::kPipeline}).index;
  const auto index = static_cast<std::size_t>(stage);
  return std::optional(models::StagePart{.stage = stage,
                                         .stages = stages,
                                         .first = cut[index],
                                         .end = cut[index + 1],
                                         .all = cut.back()});
}

}  // namespace ds::engine
