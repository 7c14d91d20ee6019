#pragma once

// DsConfig is the checked ds_config of one job, as the training runtime reads it.
//
// It is a plain value: a small struct per feature, filled by CheckConfig (check_config.h). Every
// field has the name of its key. settings.json documents each key's meaning, its cost and its
// default; the initializers below repeat the defaults (a test keeps the two equal). Keys without
// effect are handled by CheckConfig and have no field.
//
// Units: bucket sizes and thresholds are elements, not bytes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/expert_gate_config.h"
#include "runtime/config/optimizer.h"
#include "runtime/config/schedule.h"

namespace ds::config {

enum class DataType { kFp32, kFp16, kBf16 };

// train_batch_size == micro-batch size * accumulation steps * world size, always.
struct BatchConfig {
  std::int64_t train_batch_size = 1, train_micro_batch_size_per_gpu = 1;
  std::int64_t gradient_accumulation_steps = 1;
};

// Mixed precision in fp16, with loss scaling.
struct Fp16Config {
  bool enabled = false;
  bool auto_cast = false;   // casts inputs of the model to fp16
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
  // PyTorch names of the modules with gradients that are reduced in `dtype`.
  std::vector<std::string> lower_precision_safe_modules;
};

// The degrees of parallelism other than data parallelism. The remaining factor of the world size is
// the number of ranks with samples of their own (sections/parallel_section.h).
struct ParallelConfig {
  int pipeline = 1, sequence = 1, tensor = 1;
  int expert = 1;  // ranks, of those that share the state, that hold different experts
  bool data_before_expert = false;  // topology::Degrees
  // Sums over tensor ranks overlap the matrix products for weight gradients (models::SharedAffine).
  bool tensor_sums_overlap = false;

  std::int64_t ranks_of_a_sample() const { return std::int64_t{pipeline} * sequence * tensor; }
};

// PipelineConfig selects how a model is split into pipeline stages.
struct PipelineConfig {
  std::string partition = "best";          // one that pipeline::PartitionBlocks knows
  int activation_checkpoint_interval = 0;  // 1: recomputes layers in the backward pass
  // Each tensor rank sends its part of the tensors that stages exchange; false: each sends all.
  bool pipe_partitioned = true;  // of activations
  bool grad_partitioned = true;  // of their gradients
};

// ZenFlowConfig holds zero_optimization.zenflow. ZenFlow updates the important columns of a matrix
// in every step, and the others by the mean gradient of several steps
// (plan/zero/zenflow_schedule.h).
struct ZenFlowConfig {
  double topk_ratio = 0.1;                      // fraction of a matrix's columns
  std::int64_t select_interval = 0;             // steps, or epochs; 0: columns are selected once
  bool counts_epochs = false;                   // select_interval counts epochs
  std::optional<std::int64_t> steps_per_epoch;  // absent: derived from the training data
  std::optional<std::int64_t> update_interval;  // absent: adaptive (ZenFlowBalance)
  double auto_ratio = 0.99;                     // fraction of matrices that must be due
  std::int64_t full_warm_up_rounds = 0;         // initial steps that update everything
  bool overlap_step = false;
  // Fraction of a rank's cores that the overlapped update leaves to the model. Absent: both use all
  // cores.
  std::optional<double> compute_cores = {};
  bool offload = false;  // offloads the moments of the important columns, too
};

enum class OffloadDevice { kNone, kCpu, kNvme };

struct OffloadParamConfig {
  OffloadDevice device = OffloadDevice::kNone;
  std::vector<std::string> nvme_path;  // folders; at least one for kNvme
  // Elements.
  std::int64_t buffer_count = 5;
  std::int64_t buffer_size = 100'000'000;
  std::int64_t max_in_cpu = 1'000'000'000;
};

struct OffloadOptimizerConfig {
  OffloadDevice device = OffloadDevice::kNone;
  std::vector<std::string> nvme_path;
  std::int64_t buffer_count = 4;
  bool pipeline_read = false;
  bool pipeline_write = false;
  double ratio = 1.0;          // at least this fraction of the state is offloaded
  bool super_offload = false;  // updates blocks in the backward pass
  // Fraction of a rank's cores reserved for these updates. Absent: none is reserved, and the rank's
  // own thread updates between blocks.
  std::optional<double> update_cores = {};
};

// Transfers to and from files.
struct AioConfig {
  std::int64_t block_size = 1 << 20;  // bytes
  int queue_depth = 8;
  int intra_op_parallelism = 1;
  bool single_submit = false;
  bool overlap_events = true;
};

// LoCo: the error of quantizing a gradient to 4 bits is added to the next gradient.
struct LocoConfig {
  double err_beta = 0.8;            // weight of the previous error
  std::int64_t reset_every = 1024;  // reductions between resets of the error
};

struct ZeroConfig {
  int stage = 0;
  // False: a trained parameter without a gradient ends the run.
  bool ignore_unused_parameters = true;
  std::optional<int> mics_shard_size;  // ranks that state is sharded over; absent: all ranks
  // ZeRO++, at stage 3.
  int hpz_partition_size = 1;  // ranks that hold a second set of shards; 1: no second set
  bool quantized_weights = false;
  bool quantized_gradients = false;
  bool quantized_frozen_weights = false;  // stores and gathers frozen weights quantized
  std::optional<LocoConfig> loco;
  bool overlap_comm = false;  // overlaps collectives with computation, where that pays
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

// ActivationCheckpointingConfig holds the section `activation_checkpointing`. The section selects
// whether layers are recomputed (config/recompute_choice.h) and how their inputs are kept.
struct ActivationCheckpointingConfig {
  bool asked_for = false;              // a key of the section differs from its default
  bool partition_activations = false;  // each tensor rank keeps its part of the inputs
  // One buffer holds the parts of this many layers. Absent: each part has memory of its own.
  std::optional<std::int64_t> buffered_parts;
  bool cpu_checkpointing = false;
  bool synchronize_checkpoint_boundary = false;
  bool profile = false;  // reports the times of recomputed blocks, per step
};

// Files with the metrics of each step, for other tools.
struct StepMonitorConfig {
  bool enabled = false;
  std::string output_path;                    // relative to the working directory of the first rank
  std::string job_name = "DeepSpeedJobName";  // a folder in output_path
};

struct DsConfig {
  BatchConfig batch;
  OptimizerConfig optimizer;
  Schedule scheduler;
  // The schedules of the parameter groups, where scheduler.params has lists. `scheduler` is the
  // first of these.
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
  std::optional<DataType> buffer_dtype;  // absent: the model's buffers keep their dtype
  // Selects how gradients of ranks are combined (device/gradient_reduction.h).
  GradientReduceOp gradient_allreduce_op = GradientReduceOp::kMean;
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  bool sparse_gradients = false;  // reduces embedding tables by rows at stage 0
  // Reports memory by use at the end of each phase of a step, and the time that each phase takes.
  bool memory_breakdown = false, wall_clock_breakdown = false;
  StepMonitorConfig csv_monitor, tensorboard;

  // Returns the dtype of parameters and activations.
  DataType training_dtype() const {
    if (fp16.enabled) return DataType::kFp16;
    return bf16.enabled ? DataType::kBf16 : DataType::kFp32;
  }
};

}  // namespace ds::config
