#include "cli/commands/plan_parts.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "cli/train/find_model.h"
#include "runtime/base/printable.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/config_text.h"
#include "runtime/plan/estimate/fit_degrees.h"
#include "runtime/plan/estimate/predict_memory.h"
#include "runtime/plan/memory/expert_rules.h"
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

// --fit searches for batch and degrees, so the config may be valid for all `ranks` or for one.
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

// Describes the model on the ranks of the plan, with samples of --seq_len tokens.
StatusOr<engine::JobShape> DescribeJobOf(const PlanFlags& flags, const WorldPlan& world) {
  engine::JobShape job;
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(const std::filesystem::path path, FindModel(flags.model, share));
  DS_ASSIGN_OR_RETURN(job.model, plan::ReadJobModel(path));
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
  job.packs_documents = tokenizer::HasTokenizer(path);  // `train` packs tokenized texts
  job.setting = {.ranks = world.world_size(),
                 .ranks_of_host = ranks_of_a_host,
                 .on_gpu = !world.hosts.front().devices.empty()};
  return job;
}

void AddFitFlags(FlagParser* parser, PlanFlags* flags) {
  parser->app().add_flag("--fit", flags->fit,
                         "propose ZeRO's stage, --tp, --sp, --ep and --pp for --model on these "
                         "ranks of --memory each; status 1 if nothing fits");
  parser->app()
      .add_option("--memory", flags->memory, "of --fit: what a rank may have (80G)")
      ->type_name("BYTES");
  parser->app()
      .add_option("--seq_len", flags->seq_len,
                  "of --fit and --deepspeed_config: tokens per sample (default: 256)")
      ->check(WholeNumber(1))
      ->type_name("N");
  parser->app()
      .add_option("--expert_load", flags->expert_load,
                  "of --fit and --deepspeed_config: plan for ranks whose experts get FACTOR times "
                  "their even share (default: 1)")
      ->check(NumberBetween(1, plan::kMostExpertLoad))
      ->type_name("FACTOR");
  parser->app()
      .add_option("--deepspeed_config", flags->deepspeed_config,
                  "of --fit: precision and optimizer (default: bf16 and AdamW); of a mesh with "
                  "stages of --model: show what they hold and send in a step")
      ->type_name("FILE");
}

void AddScheduleFlags(FlagParser* parser, PlanFlags* flags) {
  parser->app().add_option("--schedule", flags->schedule,
                           "draw this schedule of the mesh's pipeline: gpipe, 1f1b (the default), "
                           "interleaved, zb-h1 or zb-v");
  parser->app()
      .add_option("--micro_batches", flags->micro_batches,
                  "micro-batches of a step in the drawing (default: twice the stages)")
      ->check(WholeNumber(1));
  parser->app()
      .add_option("--chunks", flags->chunks,
                  "runs of blocks that each stage has in the drawing (default: the fewest "
                  "that the schedule has)")
      ->check(WholeNumber(1));
  parser->app().add_option("--partition", flags->partition,
                           "cut the blocks of --model among the stages by uniform numbers, by "
                           "parameters (the default), by profile (their work), or by type:REGEX, "
                           "how many have such a name; with --deepspeed_config by memory, too");
  parser->app().add_option("--svg", flags->svg, "write the drawing of the schedule to this file");
}

}  // namespace

StatusOr<bool> PrintFits(const PlanFlags& flags, const WorldPlan& world) {
  plan::FitQuestion question;
  DS_ASSIGN_OR_RETURN(question.job, DescribeJobOf(flags, world));
  DS_ASSIGN_OR_RETURN(config::CheckResult checked, ReadFitConfig(flags, world.world_size()));
  question.config = std::move(checked.config);
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(question.config.moe, &question.job.model));
  question.job.efficiency = std::move(checked.data_efficiency);
  DS_ASSIGN_OR_RETURN(question.room, plan::ParseMemory(flags.memory));
  question.ranks_of_a_host = question.job.setting.ranks_of_host;
  DS_RETURN_IF_ERROR(plan::CheckFitIsKnown(question).WithContext("--fit"));
  const std::vector<plan::Fit> fits = plan::FitDegrees(question);
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

StatusOr<plan::StagePlans> PlanStagesOf(const PlanFlags& flags, config::CheckResult checked,
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
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(config.moe, &job.model));
  config.parallel = {.pipeline = degrees.pipeline,
                     .sequence = degrees.sequence,
                     .tensor = degrees.tensor,
                     .expert = degrees.expert,
                     .data_before_expert = degrees.data_before_expert};
  config::BatchConfig& batch = config.batch;
  batch.train_batch_size /= batch.gradient_accumulation_steps;  // of one micro-batch on all ranks
  batch.gradient_accumulation_steps = schedule.shape().micro_batches;
  batch.train_batch_size *= batch.gradient_accumulation_steps;
  config.pipeline.partition = flags.partition;
  auto plans = plan::PlanStages(config, job);
  if (!plans.ok()) return plans.status().WithContext("the steps of the stages");
  return plans;
}

void AddPlanFlags(FlagParser* parser, PlanFlags* flags) {
  parser->app().add_flag("--json", flags->json, "print one JSON object");
  parser->app().add_option("--mesh", flags->mesh,
                           "draw these ranks as a mesh, outermost axis first, as in "
                           "pipeline=2,shard=4,tensor=2 (axes: pipeline, replicate, shard, "
                           "sequence, tensor; and expert); shard takes the ranks that are left");
  parser->app().add_option("--model", flags->model,
                           "hold the mesh against this model: a folder, a config.json or a preset");
  AddScheduleFlags(parser, flags);
  AddFitFlags(parser, flags);
}

}  // namespace ds::cli
