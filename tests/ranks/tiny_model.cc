#include "tests/ranks/tiny_model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>

#include "runtime/base/isa_probe.h"
#include "runtime/comm/communicator.h"
#include "runtime/models/decoder/family_block.h"

namespace ds::tests {
namespace {

using models::UnmaterialisedParameter;

// Larger than a real model's first values, so that three steps show.
const models::NormalInit kInit{.std = 0.5};

class Table : public models::FamilyBlock {
 public:
  Table(const TinyShape& shape, const at::TensorOptions& options)
      : FamilyBlock("", kInit),
        table(register_parameter(
            "table", UnmaterialisedParameter({shape.vocabulary, shape.width}, options))) {}

  Bundle forward(Bundle bundle) override {
    bundle.hidden = at::embedding(table, bundle.tensor("tokens"));
    if (const auto poison = bundle.extras.find("poison"); poison != bundle.extras.end()) {
      bundle.hidden = bundle.hidden * poison->second;
    }
    return bundle;
  }

  at::Tensor table;
};

class Layer : public models::FamilyBlock {
 public:
  Layer(int index, const TinyShape& shape, const at::TensorOptions& options)
      : FamilyBlock("layer." + std::to_string(index), kInit),
        index_(index),
        w_(register_parameter("w", UnmaterialisedParameter({shape.width, shape.width}, options))),
        scale_(register_parameter("scale", UnmaterialisedParameter({shape.width}, options))),
        b_(register_parameter("b", UnmaterialisedParameter({shape.width}, options))) {
    register_parameter("unused", UnmaterialisedParameter({3}, options));
    scale_.set_requires_grad(false);
  }

  Bundle forward(Bundle bundle) override {
    const auto only = bundle.extras.find("only_layer");
    if (only != bundle.extras.end() && only->second.item<int>() != index_) return bundle;
    bundle.hidden = bundle.hidden + at::tanh(at::matmul(bundle.hidden, w_) + b_) * scale_;
    return bundle;
  }

 private:
  const int index_;
  at::Tensor w_, scale_, b_;
};

class Head : public models::FamilyBlock {
 public:
  Head(std::shared_ptr<Table> tied, const TinyShape& shape, const at::TensorOptions& options)
      : FamilyBlock("head", kInit),
        tied_(std::move(tied)),
        gain_(register_parameter("gain", UnmaterialisedParameter({shape.width}, options))) {}

  Bundle forward(Bundle bundle) override {
    const at::Tensor logits = at::matmul(bundle.hidden * gain_, tied_->table.t());
    bundle.loss = at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat),
                                         bundle.tensor("labels").flatten());
    return bundle;
  }

 private:
  std::shared_ptr<Table> tied_;  // not registered: the parameter is the first block's
  at::Tensor gain_;
};

constexpr std::int64_t kSamplesPerStep = 24;
constexpr std::int64_t kTokens = 4;

}  // namespace

std::shared_ptr<BlockList> MakeTinyModel(const TinyShape& shape, const at::TensorOptions& options) {
  auto model = std::make_shared<BlockList>();
  auto table = std::make_shared<Table>(shape, options);
  model->Add(table);
  for (int i = 0; i < shape.layers; ++i) model->Add(std::make_shared<Layer>(i, shape, options));
  model->Add(std::make_shared<Head>(table, shape, options), {0});
  return model;
}

config::DsConfig TinyConfig(const TinyRun& run) {
  config::DsConfig config;
  config.batch.gradient_accumulation_steps = run.accumulation;
  config.optimizer = {.lr = 0.05, .weight_decay = 0.1, .algorithm = run.optimizer};
  config.zero_optimization = run.zero;
  config.zero_optimization.stage = run.stage;
  config.gradient_clipping = run.gradient_clipping;
  config.bf16.enabled = run.precision != Precision::kFp32;
  config.bf16.bf16_master_weights_and_grads = run.precision >= Precision::kBf16Masters;
  config.bf16.bf16_optimizer_states =
      run.precision == Precision::kBf16State || run.precision == Precision::kBf16Throughout;
  return config;
}

std::unique_ptr<Engine> MakeTinyEngine(const TinyRun& run, comm::Communicator& world,
                                       device::MemoryLedger* ledger) {
  // Before the process's first bf16 product.
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  const auto model =
      MakeTinyModel(run.shape, at::TensorOptions(run.dtype()).device(world.device()));
  return Engine::create(model, TinyConfig(run),
                        {.world = &world,
                         .ledger = ledger,
                         .device = world.device(),
                         .decides_on_device = run.decides_on_device,
                         .recompute = run.recompute,
                         .parameter_group = run.groups})
      .value();
}

Bundle TinyBatch(const TinyRun& run, const comm::Communicator& world, std::int64_t micro_batch) {
  const std::int64_t samples = kSamplesPerStep / (world.size() * run.accumulation);
  const std::int64_t first = (micro_batch * world.size() + world.rank()) * samples * kTokens;
  const at::Tensor positions = at::arange(first, first + samples * kTokens, at::kLong);
  const at::Tensor tokens =
      (positions * positions * 7 + positions * 3).remainder(run.shape.vocabulary);
  const at::Tensor labels = (tokens * 5 + 1).remainder(run.shape.vocabulary);
  const auto put = [&](const at::Tensor& ids) {
    return ids.view({samples, kTokens}).to(world.device());
  };
  return {.batch = {{"tokens", put(tokens)}, {"labels", put(labels)}}};
}

void RunMicroBatch(Engine& engine, const TinyRun& run, std::int64_t micro_batch) {
  engine.backward(engine.forward(TinyBatch(run, engine.world(), micro_batch)));
}

std::vector<StepResult> TrainTiny(Engine& engine, const TinyRun& run, int steps) {
  std::vector<StepResult> results;
  for (int i = 0; i < steps; ++i) {
    std::int64_t micro_batch = engine.finished_steps() * run.accumulation;
    const auto next = [&]() -> StatusOr<Bundle> {
      return TinyBatch(run, engine.world(), micro_batch++);
    };
    results.push_back(engine::TrainStep(engine, next).value());
  }
  return results;
}

std::map<std::string, at::Tensor> ExportAll(Engine& engine) {
  std::map<std::string, at::Tensor> parameters;
  const Status status =
      engine.ExportParameters([&](const std::string& name, const at::Tensor& value) {
        parameters[name] = value.clone();
        return OkStatus();
      });
  DS_CHECK_MSG(status.ok(), status.message());
  return parameters;
}

}  // namespace ds::tests
