#include "runtime/plan/memory/job_memory.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/memory/expert_bytes.h"
#include "runtime/plan/memory/known_memory.h"
#include "runtime/plan/memory/product_scratch.h"
#include "runtime/plan/memory/stage_partition.h"
#include "runtime/plan/memory/stage_passes.h"
#include "runtime/plan/memory/trained_rules.h"
#include "runtime/plan/memory/unit_memory.h"
#include "runtime/plan/memory/unit_shapes.h"
#include "runtime/plan/model/model_ranks.h"
#include "runtime/plan/model/trained_names.h"

namespace ds::engine {
namespace {

// Returns the most tokens of a sample in any step, as config::DifficultyAt computes them.
std::int64_t FindMost(const config::CurriculumConfig& curriculum) {
  const std::int64_t least = curriculum.min_difficulty, end = curriculum.max_difficulty;
  if (least >= end) return least;
  if (curriculum.difficulty.empty()) return end;
  std::int64_t most = 1;
  for (const std::int64_t difficulty : curriculum.difficulty) {
    most = std::max(most, difficulty);
    if (difficulty >= end) break;  // the difficulty stays at its end
  }
  return most;
}

// AtFirstStep and AtMost: return a job with growing samples (JobShape::efficiency) as if all steps
// saw the part of the first step, or the largest part of any step.
JobShape AtFirstStep(JobShape job) {
  if (auto& curriculum = job.efficiency.curriculum) {
    job.seq_len = std::min(job.seq_len, config::DifficultyAt(*curriculum, 1));
    curriculum.reset();
  }
  if (auto& drops = job.efficiency.random_ltd) {
    drops->min_value = drops->max_value = config::KeptTokensAt(*drops, 0);
  }
  return job;
}

JobShape AtMost(JobShape job) {
  if (auto& curriculum = job.efficiency.curriculum) {
    job.seq_len = std::min(job.seq_len, FindMost(*curriculum));
    curriculum.reset();
  }
  if (auto& drops = job.efficiency.random_ltd) {
    drops->min_value = drops->max_value = std::max(drops->min_value, drops->max_value);
  }
  return job;
}

// Returns the number of samples of seq_len tokens that a micro-batch is planned as. With batches
// formed by tokens, it is the number that holds max_tokens. Padding to a longer sample is not
// included: it depends on the data.
std::int64_t RowsOfMicroBatch(const JobShape& job, std::int64_t micro_batch) {
  const auto& batching = job.efficiency.dynamic_batching;
  if (!batching) return micro_batch;
  const std::int64_t full = (batching->max_tokens - 1) / job.seq_len + 1;
  std::int64_t rows = 0;
  const bool is_too_many = __builtin_mul_overflow(
      micro_batch, std::min(full, batching->max_batch_size.value_or(full)), &rows);
  return is_too_many ? std::numeric_limits<std::int64_t>::max() : rows;
}

// Returns the first feature with memory that the plan cannot predict, or "".
std::string FindUnknown(const config::DsConfig& config, const JobShape& job) {
  if (config.parallel.sequence > 1 && job.model.qkv == models::QkvLayout::kLatent) {
    return "the memory of latent keys and values on sequence ranks";
  }
  if (job.sp_chunk > 0 && job.model.qkv == models::QkvLayout::kLatent) {
    return "the memory of latent keys and values with --sp_chunk";
  }
  return FindUnknownMemory(config);
}

// The memory of experts has been validated only for ranks that have full experts.
std::string FindUnknownOfExperts(const config::DsConfig& config, const JobShape& job) {
  if (job.model.experts == 0) return "";
  const std::pair<bool, const char*> unknown[] = {
      {config.parallel.tensor > 1, "that tensor ranks shard"},
      {job.mlp_tiles > 1, "in tiles"},
      {!job.trained.is_all(), "with frozen parts"},
  };
  for (const auto& [present, how] : unknown) {
    if (present) return std::string("the memory of experts ") + how;
  }
  return "";
}

models::MicroBatch MakeMicroBatch(const config::DsConfig& config, const JobShape& job) {
  const auto& drops = job.efficiency.random_ltd;
  return {
      .samples = RowsOfMicroBatch(job, config.batch.train_micro_batch_size_per_gpu),
      .seq_len = job.seq_len,
      .type = config.training_dtype(),
      .on_gpu = job.setting.on_gpu,
      .multiplied_in_fp32 = models::IsMultipliedInFp32(config.training_dtype()),
      .mlp_tiles = job.mlp_tiles,
      .sequence_ranks = config.parallel.sequence,
      .in_ring = job.sequence_kind == models::SequenceKind::kRing,
      .sp_chunk = job.sp_chunk < job.seq_len ? job.sp_chunk : 0,
      .offloads_chunks = !job.sp_offload.empty() && (job.sp_offload != "cpu" || job.setting.on_gpu),
      .expert_ranks = config.parallel.expert,
      .expert_load =
          std::min(job.expert_load, models::MostExpertLoad(job.model, config.parallel.expert)),
      .layer_loads = job.layer_loads,
      .tensor_ranks = config.parallel.tensor,
      .keeps_parts = config.activation_checkpointing.partition_activations,
      .documents = job.packs_documents,
      .kept_tokens = drops ? drops->max_value : 0,
      .dropping = drops ? drops->layers : std::vector<std::int64_t>()};
}

// Sets the micro-batch's heads to the heads of the first sequence rank, which has the most.
void ShareHeads(const models::TensorPlan& tensor_plan, models::MicroBatch* batch) {
  if (batch->sequence_ranks == 1 || batch->in_ring) return;
  const auto shares = models::ShareHeads(tensor_plan, batch->sequence_ranks);
  DS_CHECK(shares.ok());
  batch->own_heads = shares->queries.front().count;
  batch->own_kv_heads = shares->keys.front().count;
}

StatusOr<pipeline::PipelineSchedule> MakeSchedule(const config::DsConfig& config,
                                                  const JobShape& job) {
  const int stages = config.parallel.pipeline;
  return pipeline::PipelineSchedule::Create(
      job.schedule, {.stages = stages,
                     .chunks = job.chunks,
                     .micro_batches = CountPlannedMicroBatches(
                         job.schedule, stages, config.batch.gradient_accumulation_steps)});
}

// A rank's plan, without its pipeline stage.
struct RankPlan {
  models::TensorPlan tensor_plan;
  models::MicroBatch batch;
  zero::StepMemoryInput step;  // without units
};

RankPlan MakeRankPlan(const config::DsConfig& config, const JobShape& job) {
  const int tensor = config.parallel.tensor;
  auto tensor_plan = models::TensorPlan::Create(job.model, /*part=*/0, tensor);
  DS_CHECK(tensor_plan.ok());
  RankPlan rank{.tensor_plan = *std::move(tensor_plan), .batch = MakeMicroBatch(config, job)};
  ShareHeads(rank.tensor_plan, &rank.batch);
  zero::StepSetting setting = job.setting;
  setting.ranks /= tensor * config.parallel.pipeline;
  if (setting.ranks_of_host > 0) {
    setting.ranks_of_host = std::max(1, setting.ranks_of_host / tensor);
  }
  rank.step = zero::DescribeStep(config, setting);
  const std::int64_t ids = job.packs_documents ? 3 : 2;  // tokens, labels and documents
  rank.step.batch_bytes = ids * std::int64_t{sizeof(std::int64_t)} * rank.batch.tokens();
  return rank;
}

// Names a block for messages: the embedding, a layer with its number in the parameters' names, or
// the head.
std::string NameOfBlock(int block, int blocks) {
  if (block == 0) return "the embedding";
  return block == blocks - 1 ? "the head" : "layer " + std::to_string(block - 1);
}

using BlockRuns = std::vector<std::pair<int, int>>;  // [first, end)

// Plans the stage with these blocks.
zero::StepMemory PlanBlocks(const config::DsConfig& config, const JobShape& job, RankPlan rank,
                            const BlockRuns& runs) {
  const models::DecoderSpec& model = rank.tensor_plan.slice();
  std::vector<models::BlockSizes> sizes = models::ListBlockSizes(model);
  DS_CHECK(job.trained.is_all() || models::ApplyTrainableParameters(job.trained, &sizes).ok());
  models::TakeExperts(model.experts / config.parallel.expert, &sizes);
  const auto training = models::ListTraining(sizes);
  rank.step.input_needs_gradient = training[static_cast<std::size_t>(runs.front().first)].input;
  rank.step.units = ListUnitShapes(config, rank.step, models::TakeStage(sizes, runs));
  rank.step.windows = zero::ChooseWindows(config, rank.step);
  const config::RecomputeChoice recompute = config::DecideRecompute(job.recompute, config);
  const auto blocks = models::ListBlockBytes(model, rank.batch, recompute, training);
  std::vector<bool> recomputed;
  for (const auto& [first, end] : runs) {
    for (int i = first; i < end; ++i) {
      const models::BlockBytes& block = blocks[static_cast<std::size_t>(i)];
      rank.step.names.push_back(NameOfBlock(i, static_cast<int>(blocks.size())));
      rank.step.activations.push_back({.saved = block.saved,
                                       .forward = block.forward,
                                       .backward = block.backward,
                                       .delayed = block.delayed,
                                       .delaying = block.delaying});
      recomputed.push_back(config::IsRecomputed(recompute, i, static_cast<int>(blocks.size())));
    }
  }
  const auto& buffered = config.activation_checkpointing.buffered_parts;
  if (buffered && rank.batch.tensor_ranks > 1) {
    const std::int64_t part = rank.batch.tokens() * model.width / rank.batch.tensor_ranks;
    BufferPartitions({.count = *buffered, .part_bytes = part * config::Width(rank.batch.type)},
                     recomputed, &rank.step.activations);
  }
  return zero::PlanStepMemory(rank.step);
}

zero::StepMemory PlanStage(const config::DsConfig& config, const JobShape& job, RankPlan rank,
                           int stage) {
  const auto split = PartitionStages(
      job.model, config, {job.schedule, job.chunks, job.seq_len, job.recompute, job.trained});
  const auto schedule = MakeSchedule(config, job);
  DS_CHECK(split.ok() && schedule.ok());
  BlockRuns runs;
  std::vector<zero::UnitRange> chunks;
  for (int chunk = 0; chunk < job.chunks; ++chunk) {
    const auto index = static_cast<std::size_t>(schedule->VirtualStageAt({stage, chunk}));
    runs.emplace_back((*split)[index], (*split)[index + 1]);
    const int first = chunks.empty() ? 0 : chunks.back().end;
    chunks.push_back({first, first + runs.back().second - runs.back().first});
  }
  rank.step.passes = ListPasses(*schedule, stage, chunks);
  rank.step.sent_bytes = rank.step.returned_bytes = rank.step.handed_bytes =
      rank.batch.tokens() * job.model.width * config::Width(rank.batch.type);
  const int tensor = config.parallel.tensor;
  rank.step.activation_parts = config.pipeline.pipe_partitioned ? tensor : 1;
  rank.step.gradient_parts = config.pipeline.grad_partitioned ? tensor : 1;
  zero::StepMemory memory = PlanBlocks(config, job, std::move(rank), runs);
  memory.when += " on stage " + std::to_string(stage);
  return memory;
}

}  // namespace

StatusOr<JobShape> DescribeJob(const config::TrainJob& job, models::DecoderSpec model,
                               const zero::StepSetting& setting) {
  DS_ASSIGN_OR_RETURN(models::TrainableParameters trained, FindTrainableParameters(job));
  DS_ASSIGN_OR_RETURN(const config::RecomputeChoice recompute,
                      config::ParseRecompute(job.recompute));
  DS_ASSIGN_OR_RETURN(const auto schedule, pipeline::ParseScheduleKind(job.pipeline_schedule));
  DS_ASSIGN_OR_RETURN(const auto kind, models::ParseSequenceKind(job.sequence_kind));
  const int chunks = job.pipeline_virtual_stages > 0 ? static_cast<int>(job.pipeline_virtual_stages)
                                                     : pipeline::DefaultChunksOf(schedule);
  const bool is_tokenized = (!job.tokenizer.empty() &&
                             !std::all_of(job.data.begin(), job.data.end(), config::IsTokenFile)) ||
                            std::any_of(job.data.begin(), job.data.end(), config::HasTokenIndex);
  return JobShape{.model = std::move(model),
                  .seq_len = job.seq_len,
                  .recompute = recompute,
                  .mlp_tiles = job.mlp_tiles,
                  .trained = std::move(trained),
                  .packs_documents = is_tokenized && job.packing != "none",
                  .sequence_kind = kind,
                  .sp_chunk = job.sp_chunk,
                  .sp_offload = job.sp_offload,
                  .schedule = schedule,
                  .chunks = chunks,
                  .setting = setting};
}

Status CheckMemoryIsKnown(const config::DsConfig& config, const JobShape& job) {
  if (config.moe.gate) {
    return UnimplementedError(
        "the memory of a gate with capacity (the moe section) cannot be planned");
  }
  // Invalid jobs are reported before unsupported ones.
  const config::ParallelConfig& parallel = config.parallel;
  DS_RETURN_IF_ERROR(models::CheckModelRanks(job.model, parallel.tensor, parallel.sequence,
                                             parallel.expert, job.sequence_kind));
  DS_RETURN_IF_ERROR(
      models::CheckSampleParts(job.seq_len, parallel.sequence, job.sequence_kind, job.sp_chunk));
  for (const std::string& unknown : {FindUnknown(config, job), FindUnknownOfExperts(config, job)}) {
    if (!unknown.empty()) return UnimplementedError(unknown + " is not known");
  }
  DS_RETURN_IF_ERROR(models::CheckMemoryIsKnown(job.model));
  DS_RETURN_IF_ERROR(models::CheckCountable(job.model, MakeMicroBatch(config, job)));
  if (!job.trained.is_all()) {
    std::vector<models::BlockSizes> sizes = models::ListBlockSizes(job.model);
    DS_RETURN_IF_ERROR(models::ApplyTrainableParameters(job.trained, &sizes));
  }
  if (parallel.pipeline == 1) return OkStatus();
  const StageOrder order{job.schedule, job.chunks, job.seq_len, job.recompute, job.trained};
  DS_RETURN_IF_ERROR(PartitionStages(job.model, config, order).status());
  const std::int64_t micro_batches = config.batch.gradient_accumulation_steps;
  if (job.schedule == pipeline::ScheduleKind::kGPipe && micro_batches > kMostHeld) {
    return UnimplementedError("the memory of " + std::to_string(micro_batches) +
                              " micro-batches at once on a stage (gpipe) is not known");
  }
  return MakeSchedule(config, job).status();
}

namespace {

// Plans a job with the same sample length in all steps.
zero::StepMemory PlanSteps(const config::DsConfig& config, const JobShape& job) {
  const RankPlan rank = MakeRankPlan(config, job);
  const int stages = config.parallel.pipeline;
  if (stages == 1) {
    return PlanBlocks(config, job, rank, {{0, static_cast<int>(job.model.layers) + 2}});
  }
  if (job.stage) return PlanStage(config, job, rank, *job.stage);
  zero::StepMemory most = PlanStage(config, job, rank, 0);
  for (int stage = 1; stage < stages; ++stage) {
    zero::StepMemory memory = PlanStage(config, job, rank, stage);
    if (memory.peak.total() > most.peak.total()) most = std::move(memory);
  }
  return most;
}

}  // namespace

zero::StepMemory PlanJobMemory(const config::DsConfig& config, const JobShape& job) {
  zero::StepMemory memory = PlanSteps(config, AtMost(job));
  if (!job.efficiency.curriculum && !job.efficiency.random_ltd) return memory;
  memory.first_step_peak = PlanSteps(config, AtFirstStep(job)).first_step_peak;
  return memory;
}

nlohmann::ordered_json ToJson(const zero::StepMemory& memory) {
  const zero::HeldMemory& peak = memory.peak;
  nlohmann::ordered_json json = {{"peak", peak.total()},
                                 {"when", memory.when},
                                 {"parameters", peak.parameters},
                                 {"gradients", peak.gradients},
                                 {"optimizer_state", peak.optimizer_state},
                                 {"master_weights", peak.master_weights},
                                 {"comm_buffers", peak.comm_buffers},
                                 {"activations", peak.activations},
                                 {"other", peak.other},
                                 {"peak_activations", memory.peak_activations},
                                 {"first_step", memory.first_step_peak},
                                 {"between_steps", memory.between_steps.total()}};
  json["traffic"] = {{"all_gather", memory.traffic.all_gather},
                     {"reduce_scatter", memory.traffic.reduce_scatter},
                     {"all_reduce", memory.traffic.all_reduce},
                     {"all_to_all", memory.traffic.all_to_all},
                     {"between_stages", memory.traffic.between_stages}};
  for (const auto& [name, window] : {std::pair("parameters", memory.windows.parameters),
                                     std::pair("gradients", memory.windows.gradients)}) {
    json["windows"][name] = {{"whole_step", window.full_step}, {"why", window.why}};
  }
  const zero::OffloadedMemory& offload = memory.offload;
  if (offload != zero::OffloadedMemory{}) {
    json["away"] = {
        {"host", offload.host}, {"files", offload.files}, {"file_buffers", offload.file_buffers}};
  }
  return json;
}

}  // namespace ds::engine
