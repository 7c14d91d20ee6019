#include "runtime/plan/memory/stage_partition.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/config/model_state.h"
#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/memory/known_memory.h"
#include "runtime/plan/memory/trained_rules.h"
#include "runtime/plan/model/count_parameters.h"
#include "runtime/plan/model/tensor_plan.h"
#include "runtime/plan/pipeline/partition.h"

namespace ds::engine {
namespace {

// Megatron-DeepSpeed's name of a decoder layer, as known from "type:transformer" pipelines.
constexpr const char* kMegatronLayer = "ParallelTransformerLayerPipe";

// Returns the multiplications of a parameter's product with one token's row.
double CountProduct(const models::DecoderSpec& model, const models::ParameterSize& parameter,
                    bool is_embedding) {
  if (!parameter.is_matrix || is_embedding) return 0.0;  // a table lookup
  const double all = static_cast<double>(parameter.numel());
  const bool is_routed = parameter.is_expert && (parameter.part == models::BlockComponent::kDown ||
                                                 parameter.rows != model.experts);
  if (!is_routed) return all;
  return all * static_cast<double>(model.experts_per_token) / static_cast<double>(model.experts);
}

// Attention scores of a token with half of the others, and the weighted sum.
double CountAttention(const models::DecoderSpec& model, std::int64_t seq_len) {
  return static_cast<double>(model.heads) * static_cast<double>(model.head_width) *
         static_cast<double>(seq_len);
}

// Returns the bytes on a rank of a block's parameters and of the trained ones' state.
double CountState(const models::BlockSizes& block, const config::DsConfig& config,
                  std::int64_t shards) {
  config::ModelStateInputs inputs{
      .optimizer_states = config::CountOptimizerStates(config.optimizer),
      .shard_ranks = shards,
      .sharding = config::ShardingOf(config.zero_optimization, shards),
      .types = config::ChooseStateTypes(config)};
  double rounded = 0.0;  // bytes of quantized weights
  for (const models::ParameterSize& each : block.parameters) {
    if (each.bytes > 0) {
      rounded += static_cast<double>(each.bytes);
    } else {
      (each.trained ? inputs.trainable : inputs.frozen) += each.numel();
    }
  }
  if (inputs.sharding.parameters) rounded /= static_cast<double>(shards);
  return rounded + static_cast<double>(config::CountModelStateBytes(inputs).total());
}

// MemoryPartitioner: the bytes of each block on a rank.
class MemoryPartitioner {
 public:
  static StatusOr<MemoryPartitioner> Create(const models::DecoderSpec& model,
                                            const config::DsConfig& config,
                                            const StageOrder& order);

  std::vector<int> Partition() const {
    return pipeline::PartitionByCost(
        static_cast<int>(state_.size()) - 1, schedule_.shape().virtual_stages(),
        [this](int part, int first, int end) {
          const double held = HeldAt(part);
          return Sum(state_, first, end) + held * Sum(saved_, first, end);
        });
  }

 private:
  explicit MemoryPartitioner(pipeline::PipelineSchedule schedule)
      : schedule_(std::move(schedule)) {}

  // Returns micro-batches, averaged over the stage's chunks.
  double HeldAt(int virtual_stage) const {
    return static_cast<double>(schedule_.CountHeld(schedule_.LocationOf(virtual_stage).stage)) /
           schedule_.shape().chunks;
  }
  static double Sum(const std::vector<double>& sums, int first, int end) {
    return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(first)];
  }

  pipeline::PipelineSchedule schedule_;
  std::vector<double> state_{0.0}, saved_{0.0};  // prefix sums over the blocks
};

StatusOr<MemoryPartitioner> MemoryPartitioner::Create(const models::DecoderSpec& model,
                                                      const config::DsConfig& config,
                                                      const StageOrder& order) {
  DS_RETURN_IF_ERROR(models::CheckMemoryIsKnown(model));
  const config::ParallelConfig& parallel = config.parallel;
  const config::BatchConfig& batch = config.batch;
  DS_ASSIGN_OR_RETURN(const models::TensorPlan plan,
                      models::TensorPlan::Create(model, 0, parallel.tensor));
  DS_ASSIGN_OR_RETURN(
      pipeline::PipelineSchedule schedule,
      pipeline::PipelineSchedule::Create(
          order.kind, {.stages = parallel.pipeline,
                       .chunks = order.chunks,
                       .micro_batches = static_cast<int>(batch.gradient_accumulation_steps)}));
  const std::int64_t a_rank = std::max<std::int64_t>(
      1, batch.train_micro_batch_size_per_gpu * batch.gradient_accumulation_steps);
  const std::int64_t shards =
      std::max<std::int64_t>(1, batch.train_batch_size / a_rank) * parallel.sequence;
  const models::MicroBatch micro_batch{.samples = batch.train_micro_batch_size_per_gpu,
                                       .seq_len = order.seq_len,
                                       .type = config.training_dtype(),
                                       .sequence_ranks = parallel.sequence,
                                       .tensor_ranks = parallel.tensor};
  DS_RETURN_IF_ERROR(models::CheckCountable(plan.slice(), micro_batch));
  std::vector<models::BlockSizes> blocks = models::ListBlockSizes(plan.slice());
  if (!order.trained.is_all()) {
    DS_RETURN_IF_ERROR(models::ApplyTrainableParameters(order.trained, &blocks));
  }
  MemoryPartitioner result(std::move(schedule));
  const config::RecomputeChoice recompute = config::DecideRecompute(order.recompute, config);
  for (const auto& bytes :
       models::ListBlockBytes(plan.slice(), micro_batch, recompute, models::ListTraining(blocks))) {
    result.saved_.push_back(result.saved_.back() + static_cast<double>(bytes.saved));
  }
  for (const models::BlockSizes& block : blocks) {
    result.state_.push_back(result.state_.back() + CountState(block, config, shards));
  }
  return result;
}

}  // namespace

StatusOr<StageOrder> ParseStageOrder(const config::TrainJob& job, const config::DsConfig& config) {
  DS_ASSIGN_OR_RETURN(const pipeline::ScheduleKind kind,
                      pipeline::ParseScheduleKind(job.pipeline_schedule));
  DS_ASSIGN_OR_RETURN(const config::RecomputeChoice recompute,
                      config::ParseRecompute(job.recompute));
  DS_ASSIGN_OR_RETURN(models::TrainableParameters trained, FindTrainableParameters(job));
  StageOrder order{kind,
                   job.pipeline_virtual_stages > 0 ? static_cast<int>(job.pipeline_virtual_stages)
                                                   : pipeline::DefaultChunksOf(kind),
                   job.seq_len, recompute, std::move(trained)};
  const pipeline::PipelineShape shape{
      .stages = config.parallel.pipeline,
      .chunks = order.chunks,
      .micro_batches = static_cast<int>(config.batch.gradient_accumulation_steps)};
  const Status fits = pipeline::PipelineSchedule::Create(kind, shape).status();
  if (!fits.ok()) return fits.WithContext("--pp_schedule");
  return order;
}

StatusOr<std::vector<double>> CountWork(const models::DecoderSpec& model, std::int64_t seq_len) {
  DS_RETURN_IF_ERROR(models::CountBlocks(model).status());  // checks that there are not too many
  const std::vector<models::BlockSizes> blocks = models::ListBlockSizes(model);
  std::vector<double> work;
  for (const models::BlockSizes& block : blocks) {
    const bool is_embedding = work.empty(), is_head = work.size() + 1 == blocks.size();
    double of_token = is_embedding || is_head ? 0.0 : CountAttention(model, seq_len);
    for (const models::ParameterSize& parameter : block.parameters) {
      of_token += CountProduct(model, parameter, is_embedding);
    }
    if (is_head && model.tied_head) {
      of_token += static_cast<double>(model.vocabulary) * static_cast<double>(model.width);
    }
    work.push_back(of_token * static_cast<double>(seq_len));
  }
  return work;
}

StatusOr<std::vector<int>> PartitionStages(const models::DecoderSpec& model,
                                           const config::DsConfig& config,
                                           const StageOrder& order) {
  const std::string kKey = "pipeline.partition";
  DS_ASSIGN_OR_RETURN(const std::vector<models::BlockCount> counts, models::CountBlocks(model));
  DS_ASSIGN_OR_RETURN(const std::vector<double> work, CountWork(model, order.seq_len));
  const int parts = config.parallel.pipeline * order.chunks;
  if (config.pipeline.partition == "memory" && static_cast<std::size_t>(parts) <= counts.size()) {
    const auto result = MemoryPartitioner::Create(model, config, order);
    if (!result.ok()) return result.status().WithContext(kKey);
    return result->Partition();
  }
  std::vector<pipeline::WeighedBlock> blocks;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const bool is_layer = i > 0 && i + 1 < counts.size();
    blocks.push_back({.name = counts[i].name,
                      .trained = counts[i].parameters,
                      .work = work[i],
                      .other_name = is_layer ? kMegatronLayer : ""});
  }
  auto result = pipeline::PartitionBlocks(config.pipeline.partition, blocks, parts);
  if (!result.ok()) return result.status().WithContext(kKey);
  return result;
}

}  // namespace ds::engine
