#include "runtime/config/fill_config.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/config/sections/precision_rules.h"
#include "runtime/config/sections/scheduler_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// The enumerator that a choice of the registry stands for.
template <typename Enum, std::size_t N>
Enum Choice(const Json& name, const std::pair<std::string_view, Enum> (&choices)[N]) {
  for (const auto& [known, value] : choices) {
    if (name == known) return value;
  }
  CheckFailed(__FILE__, __LINE__, "a choice of the registry", name.dump());
}

constexpr std::pair<std::string_view, OptimizerType> kOptimizers[] = {
    {"Adam", OptimizerType::kAdam},
    {"AdamW", OptimizerType::kAdamW},
    {"SGD", OptimizerType::kSgd},
    {"Adagrad", OptimizerType::kAdagrad},
    {"Lion", OptimizerType::kLion},
    {"Lamb", OptimizerType::kLamb},
    {"Muon", OptimizerType::kMuon},
    {"OneBitAdam", OptimizerType::kOneBitAdam},
    {"OneBitLamb", OptimizerType::kOneBitLamb},
    {"ZeroOneAdam", OptimizerType::kZeroOneAdam},
    {"MuAdam", OptimizerType::kAdam},
    {"MuAdamW", OptimizerType::kAdamW},
    {"MuSGD", OptimizerType::kSgd}};
constexpr std::pair<std::string_view, NewtonSchulz> kNewtonSchulz[] = {
    {"gram", NewtonSchulz::kGram}, {"standard", NewtonSchulz::kStandard}};
constexpr std::pair<std::string_view, DataType> kDataTypes[] = {
    {"fp32", DataType::kFp32}, {"fp16", DataType::kFp16}, {"bf16", DataType::kBf16}};
// torch_autocast has PyTorch's names, too.
constexpr std::pair<std::string_view, DataType> kAutocastTypes[] = {
    {"bfloat16", DataType::kBf16},       {"bf16", DataType::kBf16},
    {"torch.bfloat16", DataType::kBf16}, {"float16", DataType::kFp16},
    {"fp16", DataType::kFp16},           {"half", DataType::kFp16},
    {"torch.float16", DataType::kFp16}};

std::optional<DataType> OptionalDataType(const Json& name) {
  return name.is_null() ? std::nullopt : std::optional(Choice(name, kDataTypes));
}

BatchConfig FillBatch(const Values& values) {
  return {.train_batch_size = values.Get("train_batch_size"),
          .train_micro_batch_size_per_gpu = values.Get("train_micro_batch_size_per_gpu"),
          .gradient_accumulation_steps = values.Get("gradient_accumulation_steps")};
}

OptimizerConfig FillOptimizer(const Values& values) {
  const Json betas = values.Get("optimizer.params.betas");
  const double lr = values.Get("optimizer.params.lr");
  const Json base_shapes = values.Get("optimizer.params.base_shapes");
  const Json adam_lr = values.Get("optimizer.params.adam_lr");
  return {.type = Choice(values.Get("optimizer.type"), kOptimizers),
          .lr = lr,
          .beta1 = betas.at(0),
          .beta2 = betas.at(1),
          .eps = values.Get("optimizer.params.eps"),
          .weight_decay = values.Get("optimizer.params.weight_decay"),
          .adam_w_mode = values.Get("optimizer.params.adam_w_mode"),
          .bias_correction = values.Get("optimizer.params.bias_correction"),
          .momentum = values.Get("optimizer.params.momentum"),
          .adam_lr = adam_lr.is_null() ? lr : adam_lr.get<double>(),
          .newton_schulz = Choice(values.Get("optimizer.params.ns_method"), kNewtonSchulz),
          .dampening = values.Get("optimizer.params.dampening"),
          .nesterov = values.Get("optimizer.params.nesterov"),
          .lr_decay = values.Get("optimizer.params.lr_decay"),
          .eps_inside_sqrt = values.Get("optimizer.params.eps_inside_sqrt"),
          .min_coeff = values.Get("optimizer.params.min_coeff"),
          .max_coeff = values.Get("optimizer.params.max_coeff"),
          .freeze_step = values.Get("optimizer.params.freeze_step"),
          .var_freeze_step = values.Get("optimizer.params.var_freeze_step"),
          .var_update_scaler = values.Get("optimizer.params.var_update_scaler"),
          .local_step_scaler = values.Get("optimizer.params.local_step_scaler"),
          .local_step_clipper = values.Get("optimizer.params.local_step_clipper"),
          .coeff_beta = values.Get("optimizer.params.coeff_beta"),
          .factor_max = values.Get("optimizer.params.factor_max"),
          .factor_min = values.Get("optimizer.params.factor_min"),
          .factor_threshold = values.Get("optimizer.params.factor_threshold"),
          .base_shapes = base_shapes.is_null() ? "" : base_shapes.get<std::string>(),
          .fp32_optimizer_states = values.Get("optimizer.params.fp32_optimizer_states")};
}

Fp16Config FillFp16(const Values& values) {
  return {.enabled = values.Get("fp16.enabled"),
          .auto_cast = values.Get("fp16.auto_cast"),
          .loss_scale = values.Get("fp16.loss_scale"),
          .initial_scale_power = values.Get("fp16.initial_scale_power"),
          .loss_scale_window = values.Get("fp16.loss_scale_window"),
          .hysteresis = values.Get("fp16.hysteresis"),
          .consecutive_hysteresis = values.Get("fp16.consecutive_hysteresis"),
          .min_loss_scale = values.Get("fp16.min_loss_scale"),
          .fp16_master_weights_and_grads = values.Get("fp16.fp16_master_weights_and_grads")};
}

TorchAutocastConfig FillTorchAutocast(const Values& values) {
  TorchAutocastConfig autocast{.enabled = values.Get("torch_autocast.enabled")};
  if (const Json dtype = values.Get("torch_autocast.dtype"); !dtype.is_null()) {
    autocast.dtype = Choice(dtype, kAutocastTypes);
  }
  const Json modules = values.Get("torch_autocast.lower_precision_safe_modules");
  if (modules.is_null()) {
    for (const std::string_view name : kSafeModules) {
      autocast.lower_precision_safe_modules.emplace_back(name);
    }
  } else {
    autocast.lower_precision_safe_modules = modules.get<std::vector<std::string>>();
  }
  return autocast;
}

}  // namespace

DsConfig FillConfig(const Values& values) {
  DsConfig config;
  config.batch = FillBatch(values);
  config.optimizer = FillOptimizer(values);
  config.scheduler = FillSchedule(values, 0);
  for (std::size_t group = 0; group < GroupsOfLists(values); ++group) {
    config.group_schedules.push_back(FillSchedule(values, group));
  }
  config.fp16 = FillFp16(values);
  config.bf16 = {.enabled = values.Get("bf16.enabled"),
                 .check_grad_overflow = values.Get("bf16.check_grad_overflow"),
                 .bf16_master_weights_and_grads = values.Get("bf16.bf16_master_weights_and_grads"),
                 .bf16_optimizer_states = values.Get("bf16.bf16_optimizer_states")};
  config.torch_autocast = FillTorchAutocast(values);
  config.zero_optimization = {
      .stage = values.Get("zero_optimization.stage"),
      .ignore_unused_parameters = values.Get("zero_optimization.ignore_unused_parameters")};
  config.managed_gradient_accumulation = values.Get("managed_gradient_accumulation");
  config.gradient_clipping = values.Get("gradient_clipping");
  config.communication_data_type = OptionalDataType(values.Get("communication_data_type"));
  config.grad_accum_dtype = OptionalDataType(values.Get("data_types.grad_accum_dtype"));
  config.buffer_dtype = OptionalDataType(values.Get("data_types.buffer_dtype"));
  config.gradient_allreduce_op = values.Get("gradient_allreduce_op") == "sum"
                                     ? GradientReduceOp::kSum
                                     : GradientReduceOp::kMean;
  config.prescale_gradients = values.Get("prescale_gradients");
  config.sparse_gradients = values.Get("sparse_gradients");
  config.gradient_predivide_factor = values.Get("gradient_predivide_factor");
  return config;
}

}  // namespace ds::config
