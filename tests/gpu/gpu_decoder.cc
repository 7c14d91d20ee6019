#include "tests/gpu/gpu_decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <nlohmann/json.hpp>

#include "runtime/engine/build_engine.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lm_loss.h"
#include "runtime/models/weights/model_config.h"

namespace ds::tests {
namespace {

config::DsConfig ConfigOf(const GpuDecoder& run) {
  config::DsConfig config;
  config.batch = {.train_batch_size = run.samples * run.accumulation,
                  .train_micro_batch_size_per_gpu = run.samples,
                  .gradient_accumulation_steps = run.accumulation};
  config.optimizer = {.lr = 1e-3, .weight_decay = 0.1, .algorithm = run.optimizer};
  // What is neither clipped nor skipped is updated once.
  config.gradient_clipping = run.updates_in_backward ? 0.0 : 0.5;
  config.bf16.enabled = run.bf16;
  config.bf16.check_grad_overflow = !run.updates_in_backward;
  config::ZeroConfig& zero = config.zero_optimization;
  zero.stage = run.stage;
  if (run.offloads_parameters) zero.offload_param.device = config::OffloadDevice::kCpu;
  if (run.offloads_optimizer) zero.offload_optimizer.device = config::OffloadDevice::kCpu;
  zero.offload_optimizer.super_offload = run.updates_in_backward;
  return config;
}

}  // namespace

std::unique_ptr<engine::EngineComponents> BuildDecoder(const GpuDecoder& run,
                                                       comm::Communicator& world) {
  const nlohmann::json described = {
      {"model_type", "gpt2"}, {"vocab_size", run.vocabulary}, {"n_positions", run.tokens},
      {"n_embd", run.width},  {"n_layer", run.layers},        {"n_head", run.heads},
      {"embd_pdrop", 0.0},    {"resid_pdrop", 0.0},           {"attn_pdrop", 0.0}};
  const auto model_config = models::ParseModelConfig(described.dump(), "config.json").value();
  const auto options =
      at::TensorOptions(run.bf16 ? at::kBFloat16 : at::kFloat).device(world.device());
  auto model = models::BuildModel(model_config, options);
  model->train(true);
  return engine::BuildEngine(std::move(model), ConfigOf(run),
                             {.world = &world, .device = world.device()})
      .value();
}

models::Bundle MakeBatch(const GpuDecoder& run, const comm::Communicator& world) {
  const at::Tensor positions = at::arange(run.samples * run.tokens, at::kLong);
  const at::Tensor tokens = (positions * positions * 7 + positions * 3).remainder(run.vocabulary);
  const at::Tensor labels = (tokens * 5 + 1).remainder(run.vocabulary);
  const auto put = [&](const at::Tensor& ids) {
    return ids.view({run.samples, run.tokens}).to(world.device());
  };
  models::Bundle bundle{.batch = {{"tokens", put(tokens)}, {"labels", put(labels)}}};
  bundle.measured_labels = {bundle.tensor("labels"), models::MeasureLabels(labels)};
  return bundle;
}

}  // namespace ds::tests
