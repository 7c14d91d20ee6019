#include "cli/train/judge_training.h"

#include <utility>

#include "cli/estimate/predict_memory.h"
#include "cli/train/find_model.h"
#include "runtime/config/recompute_choice.h"

namespace ds::cli {
namespace {

// None of a model whose family cannot be predicted.
std::optional<PredictedJob> FindPredictedJob(const TrainInputs& inputs, const RankCounts& ranks,
                                             const ShareFolder& share) {
  const auto path = FindModel(inputs.job.model, share);
  if (!path.ok()) return std::nullopt;
  const auto model = ReadJobModel(*path);
  if (!model.ok()) return std::nullopt;
  auto shape =
      engine::DescribeJob(inputs.job, *model, {.ranks = ranks.all, .ranks_of_host = ranks.of_host});
  if (!shape.ok()) return std::nullopt;
  shape->efficiency = inputs.data_efficiency;
  if (!engine::CheckMemoryIsKnown(inputs.config, *shape).ok()) return std::nullopt;
  return PredictedJob{.config = inputs.config, .shape = *shape};
}

MemoryNeed::OfRank PlanRank(PredictedJob job, bool on_gpu) {
  job.shape.setting.on_gpu = on_gpu;
  const MemoryPrediction rank = PredictMemory(job.config, job.shape);
  return {.bytes = rank.host_bytes(), .parts = ListHostParts(rank)};
}

MemoryNeed PlanMemory(const PredictedJob& job, bool only_warns) {
  return {.on_cpu = PlanRank(job, /*on_gpu=*/false),
          .on_gpu = PlanRank(job, /*on_gpu=*/true),
          .shared_bytes = kSharedProgramBytes,
          .only_warns = only_warns};
}

}  // namespace

StatusOr<JudgedTraining> JudgeTraining(const TrainInputs& inputs, const RankCounts& ranks,
                                       const ShareFolder& share) {
  DS_RETURN_IF_ERROR(CheckModelIsBuilt(inputs.job.model, share));
  JudgedTraining judged{.predicted = FindPredictedJob(inputs, ranks, share)};
  if (judged.predicted) judged.memory = PlanMemory(*judged.predicted, inputs.allow_overcommit);
  DS_ASSIGN_OR_RETURN(const auto recompute, config::ParseRecompute(inputs.job.recompute));
  const engine::JobShape* const shape = judged.predicted ? &judged.predicted->shape : nullptr;
  if (const auto said = DescribeRecompute(inputs.config, recompute, shape)) {
    judged.notices.push_back(*said);
  }
  return judged;
}

}  // namespace ds::cli
