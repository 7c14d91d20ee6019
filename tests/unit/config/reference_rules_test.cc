// DeepSpeed's cross-field checks, line by line, and what this runtime says instead.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/config/file/check_config.h"
#include "runtime/config/sections/optimizer_section.h"
#include "runtime/config/sections/sections.h"
#include "runtime/config/sections/zero_section.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

enum class Outcome { kError, kWarning, kAccepted };

struct Line {
  const char* condition;  // of DeepSpeed
  const char* by;         // the rule that answers, or what else does
  const char* members;    // a config that meets the condition, in Hjson
  Outcome outcome;
  const char* says;  // part of the message; of an accepted line why there is nothing to say
};

constexpr char kRegistry[] = "registry";  // type, choices, range and state of a single key
constexpr char kReader[] = "reader";      // read_values.cc

constexpr Outcome kError = Outcome::kError;
constexpr Outcome kWarning = Outcome::kWarning;
constexpr Outcome kAccepted = Outcome::kAccepted;

const std::vector<Line> kLines = {
    {"fp16.enabled and bf16.enabled", "CheckOneTrainingDtype",
     "fp16: {enabled: true}, bf16: {enabled: true}", kError, "choose one precision"},
    {"amp.enabled with ZeRO", "CheckAmpWithoutZero",
     "amp: {enabled: true}, zero_optimization: {stage: 1}", kError,
     "amp.enabled cannot be combined with ZeRO"},
    {"neither train_batch_size nor micro-batch", "DeriveBatchSizes", "train_batch_size: null",
     kError, "either train_batch_size or train_micro_batch_size_per_gpu"},
    {"batch sizes not consistent", "DeriveBatchSizes", "train_micro_batch_size_per_gpu: 3", kError,
     "train_batch_size"},
    {"batch sizes not above 0", kRegistry, "train_micro_batch_size_per_gpu: 0", kError,
     "must be at least 1, not 0"},
    {"zero stage outside 0..3", kRegistry, "zero_optimization: {stage: 4}", kError,
     "must be between 0 and 3, not 4"},
    {"zero_optimization as a boolean", kReader, "zero_optimization: true", kWarning,
     "read as stage 1"},
    {"... plus allgather_size", kRegistry, "zero_optimization: true, allgather_size: 7", kWarning,
     "allgather_size has no effect"},
    {"legacy_stage1", kRegistry, "zero_optimization: {legacy_stage1: true}", kError,
     "DeepSpeed has removed it too"},
    {"zenflow without optimizer offload to the CPU", "CheckZenFlowOffload",
     "zero_optimization: {stage: 2, zenflow: {topk_ratio: 0.2}}", kError,
     "needs zero_optimization.offload_optimizer.device \"cpu\""},
    {"zenflow.select_interval < update_interval", "CheckZenFlowIntervals",
     "zero_optimization: {zenflow: {select_interval: 2, update_interval: 4}}", kError,
     "must not be smaller than update_interval, 4"},
    {"zenflow without a number of select_interval", "CheckZenFlowSelection",
     "zero_optimization: {zenflow: {select_strategy: \"step\"}}", kError,
     "select_interval must be a number with select_strategy \"step\""},
    {"zenflow.select_interval under select_strategy auto", "CheckZenFlowSelection",
     "zero_optimization: {zenflow: {select_interval: 4}}", kError,
     "select_interval has no effect with select_strategy \"auto\""},
    {"zenflow.topk_ratio of everything", "CheckZenFlowSelection",
     "zero_optimization: {zenflow: {topk_ratio: 1.0}}", kError, "must be above 0 and below 1"},
    {"zenflow.offload without overlap_comm", "CheckZenFlowOffload",
     "zero_optimization: {overlap_comm: false, zenflow: {offload: true}}", kError,
     "zenflow.offload needs zero_optimization.overlap_comm"},
    {"super_offload without offload (silently without it)", "CheckUpdatesInBackward",
     "zero_optimization: {stage: 3, offload_optimizer: {super_offload: true}}", kError,
     "super_offload needs offload_optimizer.device"},
    {"nvme offload of the optimizer at stage 1 or 2 (silently host memory)", "CheckNvmeFolders",
     "zero_optimization: {stage: 2, offload_optimizer: {device: \"nvme\"}}", kError,
     "nvme_path must name the folder of a drive"},
    {"offload of the optimizer without ZeRO", "CheckOptimizerOffloadStage",
     "zero_optimization: {stage: 0, offload_optimizer: {device: \"cpu\"}}", kError,
     "device \"cpu\" needs zero_optimization.stage 1, 2 or 3"},
    {"offload of parameters below stage 3 (no effect)", "CheckParameterOffloadStage",
     "zero_optimization: {stage: 2, offload_param: {device: \"cpu\"}}", kWarning,
     "offload_param.device has no effect below ZeRO stage 3"},
    {"an aio.block_size that O_DIRECT does not take", "CheckIoBlockSize", "aio: {block_size: 5000}",
     kError, "block_size must be a multiple of 4096"},
    {"pipeline_loading_checkpoint outside stage 3", "CheckOverlappedLoadingStage",
     "zero_optimization: {pipeline_loading_checkpoint: true}", kError,
     "pipeline_loading_checkpoint needs zero_optimization.stage 3"},
    {"ignore_unused_parameters false where no optimizer of stages 1 and 2 is",
     "CheckUnusedParametersStage", "zero_optimization: {stage: 3, ignore_unused_parameters: false}",
     kWarning, "ignore_unused_parameters has no effect but at ZeRO stages 1 and 2"},
    {"zero_quantized_* outside stage 3", "CheckZeroPlusPlusStage",
     "zero_optimization: {stage: 2, zero_quantized_weights: true}", kWarning,
     "has no effect below ZeRO stage 3"},
    {"MiCS groups that do not divide the ranks", "CheckMicsGroupSize",
     "zero_optimization: {stage: 3, mics_shard_size: 3}", kError,
     "mics_shard_size must divide the number of ranks, "},
    {"secondary shards that do not divide the ranks", "CheckSecondaryShardSize",
     "zero_optimization: {stage: 3, zero_hpz_partition_size: 3}", kError,
     "zero_hpz_partition_size must divide the number of ranks that share the state, "},
    {"LoCo without quantised gradients (no effect)", "CheckLocoQuantization",
     "zero_optimization: {stage: 3, zeropp_loco_param: {err_beta: 0.5, reset_T: 10}}", kError,
     "err_beta needs zero_optimization.zero_quantized_gradients"},
    {"hpZ outside stage 3", "CheckZeroPlusPlusStage",
     "zero_optimization: {zero_hpz_partition_size: 2}", kWarning,
     "has no effect below ZeRO stage 3"},
    {"optimizer.params.max_grad_norm", kReader,
     "optimizer: {type: \"Adam\", params: {max_grad_norm: 1.0}}", kError, "gradient_clipping"},
    {"an optimizer that is not tested under ZeRO", kRegistry, "zero_allow_untested_optimizer: true",
     kWarning, "every optimizer on offer is tested with ZeRO"},
    {"offload with a client's optimizer", kRegistry, "zero_force_ds_cpu_optimizer: false", kWarning,
     "zero_force_ds_cpu_optimizer has no effect"},
    {"1-bit optimizers with ZeRO", "CheckOneBitWithoutZero",
     "optimizer: {type: \"OneBitAdam\"}, zero_optimization: {stage: 1}", kError,
     "cannot be combined with ZeRO"},
    {"Lamb with a static loss scale", "CheckOneBitLambScale",
     "optimizer: {type: \"Lamb\"}, fp16: {enabled: true, loss_scale: 128}", kError,
     "fp16.loss_scale must be 0, which is dynamic, with \"Lamb\""},
    {"Muon + stage 3 + reduce_scatter",
     "nobody: how gradients are reduced is not Muon's business here",
     "zero_optimization: {stage: 3, reduce_scatter: true}", kAccepted, ""},
    {"gradient_allreduce_op sum with ZeRO-3", "CheckGradientSumStage",
     "gradient_allreduce_op: \"sum\", zero_optimization: {stage: 3}", kError,
     "gradient_allreduce_op"},
    {"managed_gradient_accumulation false", "CheckUnmanagedAccumulation",
     "managed_gradient_accumulation: false, zero_optimization: {stage: 1, overlap_comm: true}",
     kError, "managed_gradient_accumulation"},
    {"bf16_optimizer_states without bf16 masters", "nobody: fp32 masters go with it, too",
     "bf16: {enabled: true, bf16_optimizer_states: true}", kAccepted, ""},
    {"bf16 masters without ZeRO", "CheckSixteenBitMasters",
     "bf16: {enabled: true, bf16_master_weights_and_grads: true}", kError,
     "needs zero_optimization.stage 1 or more"},
    {"bf16 masters without bf16 states or Adam on the host",
     "nobody: fp32 state beside them is updated wherever it lies",
     "bf16: {enabled: true, bf16_master_weights_and_grads: true}, zero_optimization: {stage: 1}",
     kAccepted, ""},
    {"fp16 masters without ZeRO", "CheckSixteenBitMasters",
     "fp16: {enabled: true, fp16_master_weights_and_grads: true}", kError,
     "needs zero_optimization.stage 1 or more"},
    {"fp16 masters without Adam on the host",
     "nobody: fp32 state beside them is updated wherever it lies",
     "fp16: {enabled: true, fp16_master_weights_and_grads: true}, zero_optimization: {stage: 1}",
     kAccepted, ""},
    {"fp16.loss_scale that is no number", kRegistry, "fp16: {loss_scale: true}", kError,
     "fp16.loss_scale must be a number, not true"},
    {"fp16.loss_scale below 0", kRegistry, "fp16: {enabled: true, loss_scale: -1}", kError,
     "fp16."},
    {"an unknown grad_accum_dtype", kRegistry, "data_types: {grad_accum_dtype: \"fp8\"}", kError,
     "must be \"fp32\", \"fp16\" or \"bf16\""},
    {"an unknown communication_data_type", kRegistry, "communication_data_type: \"fp8\"", kError,
     "must be \"fp32\", \"fp16\" or \"bf16\""},
    {"batch keys beside elasticity", "DeriveElasticBatch",
     "elasticity: {enabled: true, max_train_batch_size: 24, micro_batch_sizes: [2]}", kError,
     "elasticity"},
    {"contiguous activations that are not partitioned", "CheckPartitionBuffer",
     "activation_checkpointing: {contiguous_memory_optimization: true, number_checkpoints: 2}",
     kError, "needs activation_checkpointing.partition_activations"},
    {"contiguous activations of unknown number", "CheckPartitionBuffer",
     "activation_checkpointing: {contiguous_memory_optimization: true, partition_activations: "
     "true}",
     kError, "needs activation_checkpointing.number_checkpoints"},
    {"curriculum without a required key", "CheckCurriculumKeys",
     "curriculum_learning: {enabled: true, schedule_type: \"fixed_linear\"}", kError,
     "curriculum_learning.min_difficulty is missing"},
    {"random_ltd with a rate per layer and token", kRegistry,
     "data_efficiency: {enabled: true, data_routing: {enabled: true, random_ltd: {enabled: true, "
     "layer_token_lr_schedule: {enabled: true}}}}",
     kError, "rates by layer and token are not built"},
    {"compile.offload_opt_states with optimizer offload", "CheckCompileOffload",
     "compile: {offload_opt_states: true}, zero_optimization: {offload_optimizer: {device: "
     "\"cpu\"}}",
     kError, "cannot be combined with zero_optimization.offload_optimizer"},
    {"compile.offload_activation with another offload", "CheckCompileOffload",
     "compile: {offload_activation: true, offload_parameters: true}", kError,
     "cannot be combined with any other offload"},
    {"compile.offload_parameters with offload_opt_states", "CheckCompileOffload",
     "compile: {offload_parameters: true, offload_opt_states: true}", kError,
     "cannot be combined with compile.offload_opt_states"},
    {"pipeline with ZeRO 2 or 3", kRegistry, "pipeline: {stages: 2}, zero_optimization: {stage: 2}",
     kAccepted, "a stage's ranks cut what they have at every stage of ZeRO"},
    {"experts' limited groups above all groups", "CheckExpertFeatures",
     "expert_parallel: {enabled: true, num_expert_groups: 2, num_limited_groups: 3}", kError,
     "num_limited_groups must not be above num_expert_groups, 2"},
    {"experts' load_balance_coeff", "CheckExpertFeatures",
     "expert_parallel: {enabled: true, load_balance_coeff: 0.1}", kError,
     "load_balance_coeff must be null"},
    {"experts and ZeRO-3 with hpZ and others", "CheckExpertFeatures",
     "expert_parallel: {enabled: true}, zero_optimization: {stage: 3, zero_hpz_partition_size: 2}",
     kError, "cannot be combined with expert_parallel under ZeRO stage 3"},
    {"inference: policy and kernels", "CheckInferenceInjection",
     "inference: {replace_with_kernel_inject: true, injection_policy: {a: 1}}", kError,
     "cannot be combined with inference.replace_with_kernel_inject"},
    {"inference: CUDA graph with tensor parallelism", "CheckInferenceInjection",
     "inference: {enable_cuda_graph: true, tensor_parallel: {tp_size: 2}}", kError,
     "cannot be combined with tensor parallelism"},
};

std::vector<std::string> All(const CheckResult& result) {
  std::vector<std::string> messages = Messages(result.errors);
  for (const Issue& warning : result.warnings) messages.push_back(warning.message);
  return messages;
}

TEST(ReferenceRulesTest, EveryCheckOfDeepSpeedIsAccountedFor) {
  for (const Line& line : kLines) {
    SCOPED_TRACE(line.condition);
    const bool has_batch = std::string_view(line.members).starts_with("train_batch_size");
    const std::string text =
        "{" + std::string(has_batch ? "" : "train_batch_size: 8, ") + line.members + "}";
    const CheckResult result = CheckConfig(text, "ds.json", 2);
    if (line.outcome == kAccepted) {
      EXPECT_TRUE(result.ok);
    } else {
      EXPECT_THAT(line.outcome == kError ? Messages(result.errors) : Messages(result.warnings),
                  Contains(HasSubstr(line.says)))
          << ::testing::PrintToString(All(result));
    }
  }
}

TEST(ReferenceRulesTest, EveryRuleOfAFeatureAnswersALine) {
  std::vector<Rule> rules(ZeroRules().begin(), ZeroRules().end());
  rules.insert(rules.end(), NotBuiltRules().begin(), NotBuiltRules().end());
  rules.insert(rules.end(), OffloadRules().begin(), OffloadRules().end());
  std::copy_if(OptimizerRules().begin(), OptimizerRules().end(), std::back_inserter(rules),
               [](const Rule& rule) {
                 return rule.name == "CheckOneBitWithoutZero" ||
                        rule.name == "CheckOneBitLambScale";
               });
  for (const Rule& rule : rules) {
    const bool derives =
        rule.name == "DisableSequentialPrefetch" || rule.name == "SetOverlapDefault";  // see below
    if (derives) continue;
    EXPECT_TRUE(std::any_of(kLines.begin(), kLines.end(), [&](const Line& line) {
      return rule.name == line.by;
    })) << rule.name;
  }
}

TEST(ReferenceRulesTest, SequentialGatherPrefetchesNothing) {
  const CheckResult result = CheckConfig(
      "{train_batch_size: 8, zero_optimization: {stage: 3, stage3_allgather_sequential: true}}",
      "ds.json", 2);
  EXPECT_EQ(OriginOf(result, "zero_optimization.stage3_prefetch_bucket_size"),
            "derived from zero_optimization.stage3_allgather_sequential");
  EXPECT_EQ(result.config.zero_optimization.prefetch_bucket_size, 1);
}

TEST(ReferenceRulesTest, OverlapFollowsTheStage) {
  const std::string key = "zero_optimization.overlap_comm";
  const auto check = [](const std::string& zero) {
    return CheckConfig("{train_batch_size: 8, zero_optimization: {" + zero + "}}", "ds.json", 2);
  };
  EXPECT_EQ(OriginOf(check("stage: 3"), key), "derived from zero_optimization.stage");
  EXPECT_TRUE(check("stage: 3").config.zero_optimization.overlap_comm);
  EXPECT_EQ(OriginOf(check("stage: 2"), key), "derived from zero_optimization.stage");
  EXPECT_FALSE(check("stage: 2").config.zero_optimization.overlap_comm);
  EXPECT_EQ(ValueOf(check("stage: 3, overlap_comm: false"), key), false);
  EXPECT_EQ(ValueOf(check("stage: 1, overlap_comm: \"auto\""), key), false);
}

}  // namespace
}  // namespace ds::config
