#include "cli/train/train_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "cli/train/check_data.h"
#include "cli/train/find_model.h"
#include "cli/train/job_config.h"
#include "cli/train/schedule_flags.h"
#include "runtime/base/files.h"
#include "runtime/base/path_exists.h"
#include "runtime/base/suggest.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/sections/elasticity_section.h"
#include "runtime/plan/model/lora_spec.h"
#include "runtime/plan/model/model_ranks.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDemoModel[] = "gpt2-demo";
constexpr auto kTraining = tokenizer::DataUse::kTraining;
constexpr std::int64_t kDemoSteps = 100;  // one minute for 8 ranks on two cores

std::string Absolute(const fs::path& path) {
  return fs::absolute(path).lexically_normal().string();
}

Status NoSuchModel(const std::string& model, const ShareFolder& share) {
  const std::vector<std::string> presets = share.Presets();
  std::string list;
  for (const std::string& name : presets) list += (list.empty() ? "" : ", ") + name;
  return NotFoundError("--model " + model +
                       ": no such folder, config.json or preset (presets: " + list + ")" +
                       DidYouMean(model, presets) + DescribeDownload("--model", model));
}

// Returns the model for the ranks: a preset's name or an absolute path.
StatusOr<std::string> CheckModel(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const bool is_here, PathExists(model));
  std::error_code error;
  if (is_here && fs::is_directory(model, error)) {
    DS_ASSIGN_OR_RETURN(const bool has_config, PathExists(fs::path(model) / "config.json"));
    if (!has_config) {
      return NotFoundError("--model " + model + ": the folder has no config.json");
    }
    return Absolute(model);
  }
  if (is_here) return Absolute(model);
  const std::vector<std::string> presets = share.Presets();
  if (std::find(presets.begin(), presets.end(), model) == presets.end()) {
    return NoSuchModel(model, share);
  }
  return model;
}

// Returns the folder of the tokenizer; "" for bytes.
StatusOr<std::string> CheckTokenizer(const std::string& given, const std::string& model) {
  if (given == "bytes") return std::string();
  const bool is_folder = fs::path(model).is_absolute();  // else a preset's name
  if (given.empty()) {
    return is_folder && tokenizer::HasTokenizer(model) ? model : std::string();
  }
  if (tokenizer::HasTokenizer(given)) return Absolute(given);
  return NotFoundError("--tokenizer " + given +
                       ": no folder with a tokenizer.json, a tokenizer.model, or a vocab.json with "
                       "merges.txt" +
                       DescribeDownload("--tokenizer", given));
}

// Fills in the weights of the job's data paths. If the data was replaced, old weights are dropped.
Status CheckBlend(const TrainFlags& flags, config::TrainJob* job) {
  if (!flags.data.empty() || !flags.data_weights.empty()) job->data_weights = flags.data_weights;
  if (job->data_weights.empty() || job->data_weights.size() == job->data.size()) return OkStatus();
  return InvalidArgumentError("--data_weights: " + std::to_string(job->data_weights.size()) +
                              " for " + std::to_string(job->data.size()) +
                              (job->data.size() == 1 ? " path" : " paths") +
                              " of --data; give each one");
}

// Fills in the config of `inputs`, or returns all its errors.
Status CheckDsConfig(const config::ConfigText& config, const TrainFlags& flags,
                     const config::JobFacts& facts, const ShareFolder& share, TrainInputs* inputs) {
  DS_ASSIGN_OR_RETURN(const config::CheckResult result, CheckJobConfig(config, flags, facts));
  const char* stage_flag = flags.pp_virtual_stages.has_value() ? "--pp_virtual_stages" : nullptr;
  if (flags.pp_schedule.has_value()) stage_flag = "--pp_schedule";
  DS_RETURN_IF_ERROR(
      CheckDegreeFlags({.stage_flag = stage_flag,
                        .sequence_flag = flags.sp_kind.has_value() ? "--sp_kind" : nullptr},
                       result.config.parallel));
  DS_RETURN_IF_ERROR(CheckChunkFlags(inputs->job));
  DS_ASSIGN_OR_RETURN(const auto kind, models::ParseSequenceKind(inputs->job.sequence_kind));
  DS_RETURN_IF_ERROR(CheckLengthFits(inputs->job.model, inputs->job.seq_len, share));
  DS_RETURN_IF_ERROR(CheckDegreesFit(inputs->job.model, result.config.parallel, share, kind));
  DS_RETURN_IF_ERROR(CheckMoeFits(inputs->job, result.config, share));
  DS_RETURN_IF_ERROR(CheckRulesFit(inputs->job.model, result.given, result.config, share));
  DS_RETURN_IF_ERROR(CheckStagesFit(inputs->job, result.config, share));
  DS_RETURN_IF_ERROR(CheckCheckpointsFit(inputs->job, result.config, share));
  DS_RETURN_IF_ERROR(models::CheckSampleParts(inputs->job.seq_len, result.config.parallel.sequence,
                                              kind, inputs->job.sp_chunk));
  if (const char* const seen = std::getenv(config::kSchedulerElasticity)) {
    DS_RETURN_IF_ERROR(config::AgreesWithScheduler(result.given, seen));
  }
  for (const config::Issue& warning : result.warnings) inputs->notices.push_back(warning.message);
  inputs->job.ds_config = config::ToDsConfigJson(result);
  inputs->job.derived_keys = result.derived;
  inputs->config = result.config;
  inputs->data_efficiency = result.data_efficiency;
  inputs->resolved_config = config::ToResolvedConfigJson(result);
  return OkStatus();
}

// Fills in the evaluation data of the job.
Status CheckEvaluation(const TrainFlags& flags, TrainInputs* inputs) {
  config::TrainJob* const job = &inputs->job;
  if (!flags.eval_data.empty() && flags.eval_split.has_value()) {
    return InvalidArgumentError(
        "--eval_split is a part of --data in place of --eval_data: give one");
  }
  if (!flags.eval_data.empty()) {
    DS_ASSIGN_OR_RETURN(job->eval_data, CheckData(flags.eval_data, tokenizer::DataUse::kEvaluation,
                                                  &inputs->notices));
    job->eval_split = 0.0;
  }
  if (flags.eval_split.has_value()) job->eval_data.clear();
  DS_RETURN_IF_ERROR(CheckFilesFit(*job));
  if (job->eval_split >= 1.0) {
    return InvalidArgumentError("--eval_split 1: nothing of --data would be left to train on");
  }
  if (job->eval_every > 0 && !job->evaluates()) {
    return InvalidArgumentError("--eval_every needs evaluation data: --eval_data or --eval_split");
  }
  if ((job->save_best || job->eval_patience > 0) && job->eval_every == 0) {
    const std::string flag = job->load_best   ? "--load_best_model_at_end"
                             : job->save_best ? "--save_best"
                                              : "--eval_patience";
    return InvalidArgumentError(flag + " compares evaluations: add --eval_every N");
  }
  return OkStatus();
}

// Fills in the adapter's folder, and rejects LoRA flags that exclude each other. A resumed run has
// its flags in the job.
Status CheckLora(const TrainFlags& flags, config::TrainJob* job) {
  if (!flags.lora_adapter.empty()) {
    const auto spec = models::ReadLoraSpec(flags.lora_adapter);
    if (!spec.ok()) return spec.status().WithContext("--lora_adapter");
    job->lora_adapter = Absolute(flags.lora_adapter);
  }
  const bool describes =
      job->lora_alpha > 0.0 || !job->lora_targets.empty() || job->lora_rslora || job->lora_dora;
  if (!job->lora_adapter.empty() && (job->lora_rank > 0 || describes)) {
    return InvalidArgumentError("--lora_adapter: the folder " + ShortenPath(job->lora_adapter) +
                                " sets rank, alpha and targets; leave out the other flags");
  }
  return CheckAdapterFlags(*job);
}

Status CheckChoices(const config::TrainJob& job) {
  DS_RETURN_IF_ERROR(CheckRowFlags(job));
  if (job.save_total_limit > 0 && !job.saves()) {
    return InvalidArgumentError(
        "--save_total_limit: this run writes no checkpoints; add --save_every, --save_best or "
        "--max_minutes");
  }
  if (job.on_non_finite != "rewind" || job.save_every > 0) return OkStatus();
  return InvalidArgumentError(
      "--on_non_finite rewind needs --save_every: there would be no checkpoint to go back to");
}

// Returns the facts for resolving "auto", once the job's model and length are known.
StatusOr<config::JobFacts> FactsOf(const TrainFlags& flags, const config::TrainJob& job,
                                   const ShareFolder& share, int world_size) {
  config::JobFacts facts{.world_size = world_size,
                         .flags = flags.training,
                         .base = flags.base,
                         .ignore_unknown_keys = flags.ignore_unknown_keys};
  DS_ASSIGN_OR_RETURN(facts.model, FindModelFacts(job.model, share));
  if (job.steps > 0) facts.total_steps = job.steps;
  facts.steps_come_later = job.steps == 0;  // ranks count the samples of the epochs
  const bool has_other_config = !flags.deepspeed_config.empty();
  const bool leaves_share = !has_other_config && TakesWarmup(flags.schedule);
  if (!facts.flags.warmup_steps && job.warmup_share > 0.0 && leaves_share) {
    facts.flags.warmup_steps = job.warmup_share;
  }
  return facts;
}

// Returns the warm-up as a fraction of all steps. Ranks apply it when they count the steps, and a
// run with another number of steps applies it again.
double WarmupShareOf(const config::JobFacts& facts) {
  const double warmup = facts.flags.warmup_steps.value_or(0.0);
  return warmup > 0.0 && warmup < 1.0 ? warmup : 0.0;
}

}  // namespace

Status CheckDegreeFlags(const DegreeFlags& flags, const config::ParallelConfig& degrees) {
  if (flags.stage_flag != nullptr && degrees.pipeline == 1) {
    return InvalidArgumentError(std::string(flags.stage_flag) +
                                " needs pipeline stages: set --pp or the config's pipeline.stages");
  }
  if (flags.sequence_flag != nullptr && degrees.sequence == 1) {
    return InvalidArgumentError(
        std::string(flags.sequence_flag) +
        " needs sequence parallelism: set --sp or the config's sequence_parallel_size");
  }
  return OkStatus();
}

Status CheckChunkFlags(const config::TrainJob& job) {
  if (job.sp_chunk > job.seq_len) {
    return InvalidArgumentError(
        fmt::format("--sp_chunk {} is not smaller than the {} tokens of a sample (--seq_len), so "
                    "it has no effect; use a smaller chunk, or leave it out",
                    job.sp_chunk, job.seq_len));
  }
  if (job.sp_offload.empty()) return OkStatus();
  if (job.sp_chunk == 0) {
    return InvalidArgumentError("--sp_offload requires --sp_chunk");
  }
  if (job.sp_chunk < job.seq_len) return OkStatus();
  return InvalidArgumentError(fmt::format(
      "--sp_offload has nothing to offload: --sp_chunk {} is the full sample (--seq_len)",
      job.sp_chunk));
}

Status CheckAdapterFlags(const config::TrainJob& job) {
  if (job.adapts()) return OkStatus();
  if (job.lora_alpha > 0.0 || !job.lora_targets.empty() || job.lora_rslora || job.lora_dora ||
      job.lora_dropout > 0.0 || job.lora_merge) {
    return InvalidArgumentError("flags of LoRA need --lora_rank or --lora_adapter");
  }
  if (job.quantize_base.empty()) return OkStatus();
  return InvalidArgumentError("--quantize_base " + job.quantize_base +
                              ": quantised weights are not trained: add adapters by --lora_rank or "
                              "--lora_adapter");
}

StatusOr<TrainInputs> GatherTrainInputs(const TrainFlags& flags, const ShareFolder& share,
                                        int world_size) {
  TrainInputs inputs;
  std::string built_in;
  const auto use = [&](const std::string& what) {
    built_in += (built_in.empty() ? "" : ", ") + what;
  };
  if (flags.model.empty()) use(std::string("model ") + kDemoModel);
  DS_ASSIGN_OR_RETURN(inputs.job.model,
                      CheckModel(flags.model.empty() ? kDemoModel : flags.model, share));
  DS_ASSIGN_OR_RETURN(inputs.job.tokenizer, CheckTokenizer(flags.tokenizer, inputs.job.model));
  std::vector<std::string> data = flags.data;
  if (data.empty()) {
    data = {share.demo_corpus().string()};
    use("data " + ShortenPath(data[0]));
  }
  DS_ASSIGN_OR_RETURN(inputs.job.data, CheckData(data, kTraining, &inputs.notices));
  if (flags.deepspeed_config.empty() && !flags.base) {
    use("config " + ShortenPath(share.default_config().string()));
  }
  ApplyTrainFlags(flags, &inputs.job);
  DS_RETURN_IF_ERROR(CheckBlend(flags, &inputs.job));
  DS_RETURN_IF_ERROR(CheckEvaluation(flags, &inputs));
  DS_RETURN_IF_ERROR(CheckLora(flags, &inputs.job));
  inputs.allow_overcommit = flags.allow_overcommit;
  inputs.demo = flags.model.empty() && flags.data.empty();
  if (inputs.demo && !flags.steps.has_value() && !flags.epochs.has_value()) {
    inputs.job.steps = kDemoSteps;
    use(std::to_string(kDemoSteps) + " steps");
  }
  if (!built_in.empty()) inputs.notices.push_back("using the built-in " + built_in);
  DS_RETURN_IF_ERROR(CheckChoices(inputs.job));
  DS_ASSIGN_OR_RETURN(config::JobFacts facts, FactsOf(flags, inputs.job, share, world_size));
  inputs.job.warmup_share = WarmupShareOf(facts);
  DS_ASSIGN_OR_RETURN(const config::ConfigText config, ReadJobConfig(flags, share, &facts));
  DS_RETURN_IF_ERROR(CheckDsConfig(config, flags, facts, share, &inputs));
  return inputs;
}

namespace {

// Rejects changes of data order. A checkpoint stores the read position for one order of one kind of
// samples.
Status CheckOrderIsUnchanged(const config::TrainJob& before, const config::TrainJob& now) {
  const std::pair<const char*, bool> kept[] = {
      {"seed", before.seed == now.seed},
      {"no_shuffle", before.shuffle == now.shuffle},
      {"packing", before.packing == now.packing},
      {"seq_len", before.seq_len == now.seq_len},
      {"max_length", before.max_length == now.max_length},
      {"truncation_mode", before.truncation_mode == now.truncation_mode},
      {"data_weights", before.data != now.data || before.data_weights == now.data_weights}};
  for (const auto& [flag, is_kept] : kept) {
    if (is_kept) continue;
    return InvalidArgumentError(fmt::format(
        "--{0}: a run that is resumed reads its data on in the order and samples that it began "
        "with; leave --{0} out, or begin a new run",
        flag));
  }
  return OkStatus();
}

}  // namespace

StatusOr<TrainInputs> OverrideTrainInputs(const config::TrainJob& job, const TrainFlags& flags,
                                          const ShareFolder& share, int world_size) {
  TrainInputs inputs{.job = job, .own_output = job.save_hf_dir};
  DS_ASSIGN_OR_RETURN(inputs.job.model,
                      CheckModel(flags.model.empty() ? job.model : flags.model, share));
  if (!flags.tokenizer.empty()) {
    DS_ASSIGN_OR_RETURN(inputs.job.tokenizer, CheckTokenizer(flags.tokenizer, inputs.job.model));
  }
  const std::vector<std::string>& data = flags.data.empty() ? job.data : flags.data;
  DS_ASSIGN_OR_RETURN(inputs.job.data, CheckData(data, kTraining, &inputs.notices));
  ApplyTrainFlags(flags, &inputs.job);
  DS_RETURN_IF_ERROR(CheckBlend(flags, &inputs.job));
  DS_RETURN_IF_ERROR(CheckOrderIsUnchanged(job, inputs.job));
  DS_RETURN_IF_ERROR(CheckEvaluation(flags, &inputs));
  DS_RETURN_IF_ERROR(CheckLora(flags, &inputs.job));
  inputs.allow_overcommit = flags.allow_overcommit;
  DS_RETURN_IF_ERROR(CheckChoices(inputs.job));
  DS_ASSIGN_OR_RETURN(config::JobFacts facts, FactsOf(flags, inputs.job, share, world_size));
  inputs.job.warmup_share = WarmupShareOf(facts);
  config::ConfigText config = RunsConfig(job, flags);
  facts.is_generated = flags.deepspeed_config.empty();
  if (!flags.deepspeed_config.empty()) {
    DS_ASSIGN_OR_RETURN(config, ReadJobConfig(flags, share, &facts));
  }
  DS_RETURN_IF_ERROR(CheckDsConfig(config, flags, facts, share, &inputs));
  return inputs;
}

}  // namespace ds::cli
