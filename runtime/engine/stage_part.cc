#include "runtime/engine/stage_part.h"

#include <utility>
#include <vector>

#include "runtime/plan/memory/stage_cut.h"

namespace ds::engine {

StatusOr<std::optional<models::StagePart>> FindStagePart(const topology::Mesh& mesh, int rank,
                                                         const models::DecoderSpec& model,
                                                         const config::DsConfig& config,
                                                         const StageOrder& order) {
  const int stages = mesh.degrees().pipeline;
  if (stages == 1) return std::optional<models::StagePart>();
  DS_ASSIGN_OR_RETURN(const std::vector<int> cut, CutStages(model, config, order));
  const pipeline::VirtualStages places{order.kind, stages, order.chunks};
  models::StagePart part{.stage = mesh.MemberOf(rank, {topology::Axis::kPipeline}).index,
                         .stages = stages,
                         .all = cut.back()};
  for (int chunk = 0; chunk < order.chunks; ++chunk) {
    const auto index = static_cast<std::size_t>(places.At({part.stage, chunk}));
    part.chunks.push_back({cut[index], cut[index + 1]});
  }
  return std::optional(std::move(part));
}

}  // namespace ds::engine
