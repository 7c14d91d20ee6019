#pragma once

// DsConfig: the ds_config of one job after checking, as the training runtime reads it.
//
// A plain value: one small struct per feature, filled by CheckConfig (check_config.h) and read
// everywhere else. Every field is named after its key; settings.json holds each key's meaning, its
// cost and the default that the initializers below repeat (a test keeps the two equal). Only keys
// that the runtime honours are here; keys without effect end in CheckConfig.
//
// Units: bucket sizes and thresholds are elements, not bytes. Threads: a value.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/schedule.h"

namespace ds::config {

enum class DataType { kFp32, kFp16, kBf16 };

// train_batch_size == micro * accumulation steps * world size, always.
struct BatchConfig {
  std::int64_t train_batch_size = 1;
  std::int64_t train_micro_batch_size_per_gpu = 1;
  std::int64_t gradient_accumulation_steps = 1;
};

enum class OptimizerType {
  kAdam,
  kAdamW,
  kSgd,
  kAdagrad,
  kLion,
  kLamb,
  kMuon,
  kOneBitAdam,
  kOneBitLamb,
  kZeroOneAdam,
};
enum class NewtonSchulz { kGram, kStandard };

struct OptimizerConfig {
  OptimizerType type = OptimizerType::kAdamW;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  // Decoupled weight decay (AdamW's rule). Type AdamW always has it, Adam unless switched off.
  bool adam_w_mode = true;
  bool bias_correction = true;                       // Adam, Lamb
  double momentum = 0.95;                            // Muon, SGD (there 0 unless given)
  double adam_lr = 1e-3;                             // Muon: the rate of what AdamW updates
  NewtonSchulz newton_schulz = NewtonSchulz::kGram;  // Muon
  double dampening = 0.0;                            // SGD
  bool nesterov = false;                             // SGD
  double lr_decay = 0.0;                             // Adagrad
  bool eps_inside_sqrt = false;                      // Lamb
  double min_coeff = 0.01;                           // Lamb: the trust ratio's limits
  double max_coeff = 10.0;
  // The 1-bit optimizers; their headers in runtime/optim say what these do.
  std::int64_t freeze_step = 100000;      // OneBitAdam, OneBitLamb
  std::int64_t var_freeze_step = 100000;  // this and the next three: ZeroOneAdam
  std::int64_t var_update_scaler = 16;
  std::int64_t local_step_scaler = 32678;
  std::int64_t local_step_clipper = 16;
  double coeff_beta = 0.9;  // this and the next three: OneBitLamb
  double factor_max = 4.0;
  double factor_min = 0.5;
  double factor_threshold = 0.1;
  std::string base_shapes;            // MuAdam, MuAdamW, MuSGD: a .bsh file; empty for the others
  bool fp32_optimizer_states = true;  // false: in the dtype of the master weights
};

struct Fp16Config {
  bool enabled = false;
  bool auto_cast = false;   // inputs of the model become fp16
  double loss_scale = 0.0;  // above 0: static
  // Settings of dynamic loss scaling (precision/loss_scaler.h).
  std::int64_t initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;
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

struct ZeroConfig {
  int stage = 0;
  bool ignore_unused_parameters = true;  // false: a trained one without a gradient ends the run
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
  double gradient_clipping = 1.0;             // largest global L2 norm; 0 is off
  bool managed_gradient_accumulation = true;  // false: every Engine::step() updates
  // Absent: the training precision.
  std::optional<DataType> communication_data_type;
  std::optional<DataType> grad_accum_dtype;
  std::optional<DataType> buffer_dtype;  // absent: the model's buffers stay as they are
  // The combination of ranks' gradients (precision/gradient_reduction.h).
  GradientReduceOp gradient_allreduce_op = GradientReduceOp::kMean;
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  bool sparse_gradients = false;  // embedding tables travel by rows at stage 0

  // The dtype of parameters and activations.
  DataType training_dtype() const {
    if (fp16.enabled) return DataType::kFp16;
    return bf16.enabled ? DataType::kBf16 : DataType::kFp32;
  }
};

}  // namespace ds::config
