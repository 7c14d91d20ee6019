#include "cli/train/judge_training.h"

#include <fmt/format.h>

#include <utility>

#include "cli/train/check_folders.h"
#include "cli/train/find_model.h"
#include "runtime/base/files.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/plan/data/job_data.h"
#include "runtime/plan/data/try_data.h"
#include "runtime/plan/estimate/predict_memory.h"
#include "runtime/plan/memory/engine_rules.h"
#include "runtime/plan/memory/expert_rules.h"
#include "runtime/plan/memory/stage_partition.h"
#include "runtime/plan/memory/trained_rules.h"
#include "runtime/plan/model/model_ranks.h"
#include "runtime/plan/schedule/lr_schedule.h"

namespace ds::cli {
namespace {

// Returns nothing for a model family without a memory prediction.
std::optional<PredictedJob> FindPredictedJob(const TrainInputs& inputs, const RankCounts& ranks,
                                             const ShareFolder& share) {
  const auto path = FindModel(inputs.job.model, share);
  if (!path.ok()) return std::nullopt;
  auto model = plan::ReadJobModel(*path);
  if (!model.ok() || !engine::TakeMoeSection(inputs.config.moe, &*model).ok()) return std::nullopt;
  auto shape =
      engine::DescribeJob(inputs.job, *model, {.ranks = ranks.all, .ranks_of_host = ranks.of_host});
  if (!shape.ok()) return std::nullopt;
  shape->efficiency = inputs.data_efficiency;
  if (!engine::CheckMemoryIsKnown(inputs.config, *shape).ok()) return std::nullopt;
  return PredictedJob{.config = inputs.config, .shape = *shape};
}

MemoryNeed::OfRank PlanRank(PredictedJob job, bool on_gpu) {
  job.shape.setting.on_gpu = on_gpu;
  const plan::MemoryPrediction rank = plan::PredictMemory(job.config, job.shape);
  return {.bytes = rank.host_bytes(), .parts = plan::ListHostParts(rank)};
}

MemoryNeed PlanMemory(const PredictedJob& job, bool only_warns) {
  return {.on_cpu = PlanRank(job, /*on_gpu=*/false),
          .on_gpu = PlanRank(job, /*on_gpu=*/true),
          .shared_bytes = plan::kSharedProgramBytes,
          .only_warns = only_warns};
}

// Tries the data, and compares the batch and the schedule with the numbers of samples and steps if
// they are known.
Status TryJobData(const TrainInputs& inputs, const models::DecoderSpec& model,
                  std::vector<std::string>* notices) {
  const config::TrainJob& job = inputs.job;
  DS_ASSIGN_OR_RETURN(std::optional<std::int64_t> positions, data::TryData(job, model.vocabulary));
  if (inputs.data_efficiency.dynamic_batching) positions.reset();  // its sample count differs
  if (job.steps == 0 && !positions) return OkStatus();
  const std::int64_t batch = inputs.config.batch.train_batch_size;
  if (positions && batch > *positions) {
    notices->push_back(fmt::format(
        "a step takes {} samples (train_batch_size); the data have {}, so each step reads them "
        "{:.1f} times",
        batch, *positions, static_cast<double>(batch) / static_cast<double>(*positions)));
  }
  DS_ASSIGN_OR_RETURN(const std::int64_t steps,
                      data::CountSteps(job, positions.value_or(0), batch));
  return optim::CheckScheduleCovers(inputs.config, steps);
}

Status CheckEngine(const TrainInputs& inputs) {
  DS_ASSIGN_OR_RETURN(const engine::StageOrder order,
                      engine::ParseStageOrder(inputs.job, inputs.config));
  return engine::CheckEngineRules(inputs.config,
                                  {.skips_non_finite = inputs.job.on_non_finite == "skip",
                                   .schedule = order.kind,
                                   .chunks = order.chunks});
}

// True for errors about files and libraries that only the ranks' hosts may have: weight shards,
// Arrow.
bool IsLack(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kUnimplemented;
}

// Checks the rules of the ranks, in the order of the ranks.
Status CheckRanks(const TrainInputs& inputs, const RankCounts& ranks, const ShareFolder& share,
                  std::vector<std::string>* notices) {
  DS_ASSIGN_OR_RETURN(models::DecoderSpec model, ReadBuiltModel(inputs.job.model, share));
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(inputs.config.moe, &model));
  DS_RETURN_IF_ERROR(engine::TakeBalance(inputs.job.router_aux_loss_coef, &model));
  const config::ParallelConfig& parallel = inputs.config.parallel;
  DS_ASSIGN_OR_RETURN(const models::SequenceKind kind,
                      models::ParseSequenceKind(inputs.job.sequence_kind));
  DS_RETURN_IF_ERROR(
      models::CheckModelRanks(model, parallel.tensor, parallel.sequence, parallel.expert, kind));
  DS_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindWeights(inputs.job.model, share));
  const auto judge = [&](const Status& status) {
    return ranks.on_this_host || !IsLack(status) ? status : OkStatus();
  };
  DS_RETURN_IF_ERROR(judge(TryJobData(inputs, model, notices)));
  DS_RETURN_IF_ERROR(judge(engine::CheckWeights(inputs.job, folder, model)));
  DS_RETURN_IF_ERROR(
      judge(engine::CheckTrainableParameters(inputs.job, inputs.config.parallel, model)));
  DS_RETURN_IF_ERROR(CheckEngine(inputs));
  return ranks.on_this_host ? CheckFolders(inputs) : OkStatus();
}

}  // namespace

StatusOr<JudgedTraining> JudgeTraining(const TrainInputs& inputs, const RankCounts& ranks,
                                       const ShareFolder& share) {
  JudgedTraining judged;
  DS_RETURN_IF_ERROR(CheckRanks(inputs, ranks, share, &judged.notices));
  judged.predicted = FindPredictedJob(inputs, ranks, share);
  if (judged.predicted) judged.memory = PlanMemory(*judged.predicted, inputs.allow_overcommit);
  DS_ASSIGN_OR_RETURN(const auto recompute, config::ParseRecompute(inputs.job.recompute));
  const engine::JobShape* const shape = judged.predicted ? &judged.predicted->shape : nullptr;
  if (const auto said = plan::DescribeRecompute(inputs.config, recompute, shape)) {
    judged.notices.push_back(*said);
  }
  const config::TrainJob& job = inputs.job;
  const bool may_replace =
      ranks.on_this_host && !job.save_hf_dir.empty() && job.save_hf_dir != inputs.own_output;
  bool replaces = false;
  if (may_replace) {
    DS_ASSIGN_OR_RETURN(replaces, HoldsExport(job.save_hf_dir));
  }
  if (replaces) {
    judged.notices.push_back("--save_hf: the model that an earlier run wrote into " +
                             ShortenPath(job.save_hf_dir) + " is replaced at the end");
  }
  const bool starts = job.resume_from.empty() && !inputs.demo && ranks.on_this_host;
  if (starts && !HasWeights(job.model)) {
    judged.notices.push_back("--model " + ShortenPath(job.model) +
                             " has no weights: they start at random (--seed)");
  }
  return judged;
}

}  // namespace ds::cli
