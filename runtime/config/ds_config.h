#pragma once

// DsConfig: the ds_config of one job after checking, as the training runtime reads it.
//
// A plain value: a small struct per feature, filled by CheckConfig (check_config.h). Every field is
// named after its key; settings.json holds each key's meaning, its cost and the default that the
// initializers below repeat (a test keeps the two equal). Keys without effect end in CheckConfig.
// Units: bucket sizes and thresholds are elements, not bytes. Threads: a value.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/activation_config.h"
#include "runtime/config/expert_gate_config.h"
#include "runtime/config/offload_config.h"
#include "runtime/config/optimizer.h"
#include "runtime/config/schedule.h"
#include "runtime/config/step_monitor_config.h"

namespace ds::config {

enum class DataType { kFp32, kFp16, kBf16 };

// train_batch_size == micro * accumulation steps * world size, always.
struct BatchConfig {
  std::int64_t train_batch_size = 1, train_micro_batch_size_per_gpu = 1;
  std::int64_t gradient_accumulation_steps = 1;
};

// Says what becomes of the inputs of parts that are recomputed (RecomputeChoice: which ones).
struct Fp16Config {
  bool enabled = false;
  bool auto_cast = false;   // inputs of the model become fp16
  double loss_scale = 0.0;  // above 0: static
  // Settings of dynamic loss scaling (engine/loss_scaler.h).
  std::int64_t initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000, hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1.0;
  bool fp16_master_weights_and_grads = false;  // parameters are updated in place
};

enum class GradientReduceOp { kMean, kSum };

struct Bf16Config {
  bool enabled = false;
  bool check_grad_overflow = true;             // skip the step when a bf16 gradient is not finite
  bool bf16_master_weights_and_grads = false;  // parameters are updated in place
  bool bf16_optimizer_states = false;
};

struct TorchAutocastConfig {
  bool enabled = false;
  DataType dtype = DataType::kBf16;
  // The modules whose gradients travel in `dtype`, by PyTorch's names.
  std::vector<std::string> lower_precision_safe_modules;
};

// Into how many parts a job is cut beside data parallelism; what is left of the ranks are those
// with samples of their own (sections/parallel_section.h).
struct ParallelConfig {
  int pipeline = 1, sequence = 1, tensor = 1;
  int expert = 1;  // of the ranks that share the state: holders of different experts
  bool data_before_expert = false;  // topology::Degrees
  // Sums of tensor ranks go on under the products of weights' gradients (models::SharedAffine).
  bool tensor_sums_overlap = false;

  std::int64_t ranks_of_a_sample() const { return std::int64_t{pipeline} * sequence * tensor; }
};

// PipelineConfig says how stages are made, where there are several.
struct PipelineConfig {
  std::string partition = "best";          // as pipeline::CutBlocks reads it
  int activation_checkpoint_interval = 0;  // 1: layers are computed again in the backward pass
  // Tensor ranks send parts of what stages send each other; false: each sends the whole.
  bool pipe_partitioned = true;  // of activations
  bool grad_partitioned = true;  // of their gradients
};

// LoCo: what 4 bits take from a gradient comes with the next one.
struct LocoConfig {
  double err_beta = 0.8;            // of the error before
  std::int64_t reset_every = 1024;  // reductions
};

struct ZeroConfig {
  int stage = 0;
  bool ignore_unused_parameters = true;  // false: a trained one without a gradient ends the run
  std::optional<int> mics_shard_size;    // ranks among which state is cut; absent: all of them
  // ZeRO++, at stage 3.
  int hpz_partition_size = 1;  // ranks that keep second shards; 1: nobody does
  bool quantized_weights = false;
  bool quantized_gradients = false;
  bool quantized_frozen_weights = false;  // kept and gathered so
  std::optional<LocoConfig> loco;
  bool overlap_comm = false;  // collectives go on beside the computation, where that pays
  // Elements; absent: the runtime's own choice (plan/zero/residency_budgets.h).
  std::optional<std::int64_t> reduce_bucket_size;
  std::optional<std::int64_t> allgather_bucket_size;
  std::optional<std::int64_t> prefetch_bucket_size;
  std::optional<std::int64_t> param_persistence_threshold;
  std::optional<std::int64_t> model_persistence_threshold;
  std::optional<std::int64_t> max_live_parameters;
  std::optional<std::int64_t> max_reuse_distance;
  std::int64_t sub_group_size = 1'000'000'000;
  OffloadParamConfig offload_param;
  OffloadOptimizerConfig offload_optimizer;
  std::optional<ZenFlowConfig> zenflow = {};
};

struct DsConfig {
  BatchConfig batch;
  OptimizerConfig optimizer;
  Schedule scheduler;
  // The schedules of the parameter groups, where scheduler.params has lists; `scheduler` is the
  // first one's.
  std::vector<Schedule> group_schedules;
  Fp16Config fp16;
  Bf16Config bf16;
  TorchAutocastConfig torch_autocast;
  ZeroConfig zero_optimization;
  ParallelConfig parallel;
  PipelineConfig pipeline;
  AioConfig aio;
  ActivationCheckpointingConfig activation_checkpointing;
  MoeConfig moe;
  double gradient_clipping = 1.0;             // largest global L2 norm; 0 is off
  bool managed_gradient_accumulation = true;  // false: every Engine::step() updates
  // Absent: the training precision.
  std::optional<DataType> communication_data_type, grad_accum_dtype;
  std::optional<DataType> buffer_dtype;  // absent: the model's buffers stay as they are
  // The combination of ranks' gradients (device/gradient_reduction.h).
  GradientReduceOp gradient_allreduce_op = GradientReduceOp::kMean;
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  bool sparse_gradients = false;  // embedding tables travel by rows at stage 0
  // Memory by use at the ends of a step's phases is reported, and how long each of them takes.
  bool memory_breakdown = false, wall_clock_breakdown = false;
  StepMonitorConfig csv_monitor, tensorboard;

  // The dtype of parameters and activations.
  DataType training_dtype() const {
    if (fp16.enabled) return DataType::kFp16;
    return bf16.enabled ? DataType::kBf16 : DataType::kFp32;
  }
};

}  // namespace ds::config
