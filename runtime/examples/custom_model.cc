// Trains a model of your own with ZeRO:
//
//   dsrun --num_gpus 4 build/bin/custom_model ds_config.json [TILES]
//
// With TILES the middle layer's matrix is split into TILES x TILES blocks; ZeRO-3 has one of these
// in memory at a time.
//
// A model is a list of blocks. Each block is a torch::nn::Module with one forward over a bundle of
// tensors; the first reads bundle.tensor("input"), the last sets bundle.loss. The engine shards the
// parameters, gradients and optimizer state of any block as zero_optimization.stage says.

#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <cstdlib>

#include "runtime/base/files.h"
#include "runtime/base/isa_probe.h"
#include "runtime/base/parse_number.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/config/file/check_config.h"
#include "runtime/engine/engine.h"
#include "runtime/models/layers/tiled_linear.h"

namespace {

class HiddenLayer : public ds::Block {
 public:
  HiddenLayer(std::string name, int in, int out)
      : Block(std::move(name)), linear_(register_module("linear", torch::nn::Linear(in, out))) {}

  ds::Bundle forward(ds::Bundle bundle) override {
    const at::Tensor& x = bundle.hidden.defined() ? bundle.hidden : bundle.tensor("input");
    // Weights have the config's dtype, a batch its maker's.
    bundle.hidden = at::gelu(linear_->forward(x.to(linear_->weight.scalar_type())));
    return bundle;
  }

 private:
  torch::nn::Linear linear_;
};

// Applies GELU to the result of a tiled layer, which consists of several blocks.
class Gelu : public ds::Block {
 public:
  Gelu() : Block("gelu") {}
  ds::Bundle forward(ds::Bundle bundle) override {
    bundle.hidden = at::gelu(bundle.hidden);
    return bundle;
  }
};

class Classifier : public ds::Block {
 public:
  Classifier(int in, int classes)
      : Block("classifier"), linear_(register_module("linear", torch::nn::Linear(in, classes))) {}

  ds::Bundle forward(ds::Bundle bundle) override {
    bundle.loss = at::cross_entropy_loss(linear_->forward(bundle.hidden), bundle.tensor("labels"));
    return bundle;
  }

 private:
  torch::nn::Linear linear_;
};

// Points of the plane; the label is the quadrant.
ds::Bundle MakeBatch(std::int64_t samples) {
  const at::Tensor points = at::randn({samples, 2});
  const at::Tensor right = points.select(1, 0).gt(0).to(at::kLong);
  const at::Tensor upper = points.select(1, 1).gt(0).to(at::kLong);
  return {.batch = {{"input", points}, {"labels", right + 2 * upper}}};
}

ds::StatusOr<std::shared_ptr<ds::BlockList>> MakeModel(std::int64_t tiles) {
  auto model = std::make_shared<ds::BlockList>();
  model->Add(std::make_shared<HiddenLayer>("layer.0", 2, 64));
  if (tiles == 1) {
    model->Add(std::make_shared<HiddenLayer>("layer.1", 64, 64));
  } else {
    const ds::models::TiledLinear middle{
        .name = "layer.1", .in = 64, .out = 64, .in_splits = tiles, .out_splits = tiles};
    DS_RETURN_IF_ERROR(ds::models::AddTiledLinear(*model, middle));
    model->Add(std::make_shared<Gelu>());
  }
  model->Add(std::make_shared<Classifier>(64, 4));
  return model;
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "custom_model: %s\n", message.c_str());
  return EXIT_FAILURE;
}

int Run(int argc, char** argv) {
  const auto tiles = argc == 3 ? ds::ParseNumber<int>(argv[2]) : 1;
  if (argc < 2 || argc > 3 || !tiles) return Fail("usage: custom_model DS_CONFIG [TILES]");
  ds::ProbeAndCapIsa();  // before the first tensor operation
  const auto text = ds::ReadFile(argv[1]);
  if (!text.ok()) return Fail(text.status().message());
  const auto identity = ds::comm::RankIdentityFromEnvironment();
  if (!identity.ok()) return Fail(identity.status().message());
  const auto checked = ds::config::CheckConfig(*text, argv[1], identity->world_size);
  if (!checked.ok) return Fail(checked.errors.front().message);

  at::manual_seed(1);  // initial values are rank 0's, and the same in every run
  auto model = MakeModel(*tiles);
  if (!model.ok()) return Fail(model.status().message());
  auto engine = ds::Engine::create(*model, checked.config);
  if (!engine.ok()) return Fail(engine.status().message());

  at::manual_seed(static_cast<std::uint64_t>(identity->rank));
  while ((*engine)->finished_steps() < 100) {
    const at::Tensor loss =
        (*engine)->forward(MakeBatch(checked.config.batch.train_micro_batch_size_per_gpu));
    (*engine)->backward(loss);
    const auto result = (*engine)->step();
    if (!result.ok()) return Fail(result.status().message());
    if (result->boundary && result->step % 20 == 0 && identity->rank == 0) {
      std::printf("step %ld  loss %.4f\n", static_cast<long>(result->step), result->loss);
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const c10::Error& error) {  // an operator of LibTorch: without the stack
    return Fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return Fail(error.what());
  }
}
