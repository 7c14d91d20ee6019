#include "cli/commands/plan_parts.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "cli/estimate/fit_degrees.h"
#include "cli/estimate/predict_memory.h"
#include "cli/train/find_model.h"
#include "runtime/base/printable.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/config_text.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::cli {

namespace {

StatusOr<config::ConfigText> ReadText(const PlanFlags& flags) {
  if (!flags.deepspeed_config.empty()) return config::ReadConfigText(flags.deepspeed_config);
  return config::ConfigText{
      .text = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
                                      "optimizer": {"type": "AdamW"}})",
      .name = "plan"};
}

// Its batch and degrees are what --fit looks for: it may be good for all `ranks`, or for one.
StatusOr<config::CheckResult> ReadFitConfig(const PlanFlags& flags, int ranks) {
  DS_ASSIGN_OR_RETURN(const config::ConfigText text, ReadText(flags));
  std::string first_error;
  for (const int world_size : {ranks, 1}) {
    config::CheckResult checked = config::CheckConfig(
        text.text, text.name, {.world_size = world_size, .steps_come_later = true});
    if (checked.ok) return checked;
    if (first_error.empty()) first_error = checked.errors.front().message;
  }
  return InvalidArgumentError(first_error +
                              " (batch sizes and degrees are what --fit looks for, and may be "
                              "left out)");
}

// The model on the ranks of the plan, in samples of --seq_len.
StatusOr<engine::JobShape> DescribeJobOf(const PlanFlags& flags, const WorldPlan& world) {
  engine::JobShape job;
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(const std::filesystem::path path, FindModel(flags.model, share));
  DS_ASSIGN_OR_RETURN(job.model, ReadJobModel(path));
  int ranks_of_a_host = world.hosts.front().rank_count();
  for (const JobHost& host : world.hosts) {
    ranks_of_a_host = std::gcd(ranks_of_a_host, host.rank_count());
  }
  job.seq_len = flags.seq_len.value_or(256);
  job.expert_load = flags.expert_load;
  if (job.expert_load > 1.0 && job.model.experts == 0) {
    return InvalidArgumentError("--expert_load: --model " + flags.model + " has no experts");
  }
  DS_RETURN_IF_ERROR(CheckLengthFits(flags.model, job.seq_len, share));
  job.packs_documents = tokenizer::HasTokenizer(path);  // as train cuts texts
  job.setting = {.ranks = world.world_size(),
                 .ranks_of_host = ranks_of_a_host,
                 .on_gpu = !world.hosts.front().devices.empty()};
  return job;
}

}  // namespace

StatusOr<bool> PrintFits(const PlanFlags& flags, const WorldPlan& world) {
  FitQuestion question;
  DS_ASSIGN_OR_RETURN(question.job, DescribeJobOf(flags, world));
  DS_ASSIGN_OR_RETURN(config::CheckResult checked, ReadFitConfig(flags, world.world_size()));
  question.config = std::move(checked.config);
  question.job.efficiency = std::move(checked.data_efficiency);
  DS_ASSIGN_OR_RETURN(question.room, ParseMemory(flags.memory));
  question.ranks_of_a_host = question.job.setting.ranks_of_host;
  DS_RETURN_IF_ERROR(CheckFitIsKnown(question).WithContext("--fit"));
  const std::vector<Fit> fits = FitDegrees(question);
  if (flags.json) {
    std::cout << nlohmann::ordered_json{{"fits", ToJson(fits)}}.dump() << std::endl;
  } else {
    std::cout << Printable(ToText(fits, question)) << std::flush;
  }
  return !fits.empty();
}

StatusOr<config::CheckResult> ReadMeshConfig(const PlanFlags& flags, int ranks,
                                             const topology::Degrees& degrees) {
  config::JobFacts facts{.world_size = ranks, .steps_come_later = true};
  facts.flags.tp = degrees.tensor;
  facts.flags.sp = degrees.sequence;
  facts.flags.pp = degrees.pipeline;
  if (degrees.expert > 1) facts.flags.ep = degrees.expert;
  DS_ASSIGN_OR_RETURN(const config::ConfigText text, ReadText(flags));
  config::CheckResult checked = config::CheckConfig(text.text, text.name, facts);
  if (!checked.ok) return InvalidArgumentError(checked.errors.front().message);
  return checked;
}

StatusOr<StagePlans> PlanStagesOf(const PlanFlags& flags, config::CheckResult checked,
                                  const pipeline::Schedule& schedule,
                                  const topology::Degrees& degrees, const WorldPlan& world) {
  DS_ASSIGN_OR_RETURN(engine::JobShape job, DescribeJobOf(flags, world));
  if (job.expert_load > 1.0 && degrees.expert == 1) {
    return InvalidArgumentError("--expert_load needs expert parallelism: set expert=N in --mesh");
  }
  job.schedule = schedule.kind();
  job.chunks = schedule.shape().chunks;
  job.efficiency = std::move(checked.data_efficiency);
  config::DsConfig config = std::move(checked.config);
  config.parallel = {.pipeline = degrees.pipeline,
                     .sequence = degrees.sequence,
                     .tensor = degrees.tensor,
                     .expert = degrees.expert,
                     .data_before_expert = degrees.data_before_expert};
  config::BatchConfig& batch = config.batch;
  batch.train_batch_size /= batch.gradient_accumulation_steps;  // of each micro-batch on all ranks
  batch.gradient_accumulation_steps = schedule.shape().micro_batches;
  batch.train_batch_size *= batch.gradient_accumulation_steps;
  config.pipeline.partition = flags.partition;
  auto plans = PlanStages(config, job);
  if (!plans.ok()) return plans.status().WithContext("the steps of the stages");
  return plans;
}

}  // namespace ds::cli
