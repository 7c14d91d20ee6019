#include "cli/train/plan_memory.h"

#include "cli/estimate/predict_memory.h"
#include "cli/train/find_model.h"

namespace ds::cli {

MemoryNeed PlanMemory(const TrainInputs& inputs, const WorldPlan& world) {
  // What of a frozen model ranks hold is not known yet.
  if (inputs.job.adapts() || !inputs.job.freeze.empty()) return {};
  const auto share = ShareFolder::OfThisProgram();
  if (!share.ok()) return {};
  const auto path = FindModel(inputs.job.model, *share);
  if (!path.ok()) return {};
  const auto model = ReadJobModel(*path);
  const auto recompute = config::ParseRecompute(inputs.job.recompute);
  if (!model.ok() || !recompute.ok()) return {};
  if (!engine::CheckMemoryIsKnown(inputs.config, *model).ok()) return {};
  const engine::JobShape job{
      .model = *model,
      .seq_len = inputs.job.seq_len,
      .recompute = *recompute,
      .mlp_tiles = inputs.job.mlp_tiles,
      .setting = {.ranks = world.world_size(), .calls = {.spans_hosts = world.hosts.size() > 1}}};
  const RankMemory rank = PredictMemory(inputs.config, job);
  return {.rank_bytes = rank.host_bytes(),
          .shared_bytes = kSharedProgramBytes,
          .parts = ListParts(rank),
          .advise = [config = inputs.config,
                     job](std::int64_t bytes) { return AdviseOnMemory(config, job, bytes); },
          .only_warns = inputs.allow_overcommit};
}

}  // namespace ds::cli
