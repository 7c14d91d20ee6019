// Thirty steps of a small model give what DeepSpeed gives: losses, learning rates, loss scales,
// skipped steps, momenta, norms and parameters, for the settings of precision, reduction, clipping,
// accumulation, schedule and optimizer in goldens/training.json, and for odd parameters.
// scripts/goldens/make_training_goldens.py says what a run is and holds the same model.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include "runtime/base/files.h"
#include "runtime/base/isa_probe.h"
#include "runtime/comm/communicator.h"
#include "runtime/config/file/check_config.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/executor.h"
#include "tests/places.h"
#include "tests/support/rank_harness.h"

namespace ds::numerics {
namespace {

using nlohmann::json;

constexpr std::int64_t kMicroBatch = 4;
constexpr std::int64_t kWidths[] = {6, 8, 8, 3};
constexpr std::size_t kEvery = 9;

// Element k is a hash of first + k in [-0.5, 0.5).
at::Tensor Uniform(std::int64_t first, std::int64_t count) {
  at::Tensor values = at::empty({count});
  float* out = values.data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    auto bits =
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(first + i) * 2654435761U + 12345U);
    bits = (bits ^ (bits >> 15)) * 2246822519U;
    out[i] = static_cast<float>(static_cast<double>(bits >> 8) / 16777216.0 - 0.5);
  }
  return values;
}

// Layer `index` of three: tanh(x w + b), the last one the squared error of x w, times the batch's
// "factor" where it has one. In the odd model the first one's w is frozen, and the last one reads
// `middle`'s, too, and has a parameter without elements and one that the loss does not know.
class Layer : public Block {
 public:
  Layer(std::int64_t index, std::int64_t* first) : Block(""), last_(index == 2) {
    const std::int64_t rows = kWidths[index], columns = kWidths[index + 1];
    const std::string number = std::to_string(index);
    w_ = register_parameter("w" + number,
                            Uniform(*first, rows * columns).view({rows, columns}).mul_(2));
    *first += rows * columns;
    if (last_) return;
    b_ = register_parameter("b" + number, Uniform(*first, columns));
    *first += columns;
  }

  void FreezeW() { w_.set_requires_grad(false); }
  void MakeLastOdd(std::shared_ptr<Layer> middle, std::int64_t first) {
    middle_ = std::move(middle);
    empty_ = register_parameter("z3", at::empty({0, kWidths[2]}));
    register_parameter("u4", Uniform(first, 20));
  }

  Bundle forward(Bundle bundle) override {
    at::Tensor x = bundle.hidden.defined() ? bundle.hidden : bundle.tensor("input");
    if (middle_) x = at::cat({at::matmul(x, middle_->w_), empty_});
    if (last_) {
      bundle.loss = (at::matmul(x, w_).to(at::kFloat) - bundle.tensor("labels")).square().mean();
      const auto factor = bundle.extras.find("factor");
      if (factor != bundle.extras.end()) bundle.loss = bundle.loss * factor->second;
    } else {
      bundle.hidden = at::tanh(at::matmul(x, w_) + b_);
    }
    return bundle;
  }

 private:
  bool last_;
  at::Tensor w_, b_, empty_;
  std::shared_ptr<Layer> middle_;  // not registered: its parameters are the other block's
};

std::shared_ptr<BlockList> MakeModel(bool odd) {
  auto model = std::make_shared<BlockList>();
  std::int64_t first = 0;
  std::vector<std::shared_ptr<Layer>> layers;
  for (std::int64_t i = 0; i < 3; ++i) layers.push_back(std::make_shared<Layer>(i, &first));
  if (odd) {
    layers[0]->FreezeW();
    layers[2]->MakeLastOdd(layers[1], first);
  }
  model->Add(layers[0]);
  model->Add(layers[1]);
  model->Add(layers[2], odd ? std::vector<int>{1} : std::vector<int>{});
  return model;
}

Bundle MakeBatch(std::int64_t index, at::ScalarType dtype, const json& golden) {
  const auto values = [&](std::int64_t base, std::int64_t width) {
    const std::int64_t count = kMicroBatch * width;
    return Uniform(base + index * count, count).mul_(4).view({kMicroBatch, width});
  };
  Bundle batch{.batch = {{"input", values(1000000, kWidths[0]).to(dtype)},
                         {"labels", values(10000000, kWidths[3])}}};
  for (const json& hot : golden.value("hot", json::array())) {
    if (hot == index) batch.extras["factor"] = at::full({}, golden["factor"].get<double>());
  }
  return batch;
}

struct Trajectory {
  std::vector<StepResult> steps;
  std::map<std::string, std::vector<double>> parameters;  // by the number of steps, as a golden's
};

// The master weights of all ranks, in the order of the model's parameters.
class Weights {
 public:
  void Take(Engine& engine) {
    std::vector<checkpoint::TensorShard> shards;
    engine.state().AddShards(&shards);
    const std::lock_guard lock(mutex_);
    for (const checkpoint::TensorShard& shard : shards) {
      if (shard.name.find('/') != std::string::npos) continue;
      const at::Tensor flat = checkpoint::ReadAll(*shard.source).value().to(at::kFloat);
      for (std::int64_t i = 0; i < flat.numel(); ++i) {
        values_[{shard.name[1], shard.name[0] == 'b'}][shard.flat_start + i] =
            flat.const_data_ptr<float>()[i];
      }
    }
  }
  std::vector<double> Sampled() const {
    std::vector<double> all, sampled;
    for (const auto& [parameter, values] : values_) {
      for (const auto& [index, value] : values) all.push_back(value);
    }
    for (std::size_t i = 0; i < all.size(); i += kEvery) sampled.push_back(all[i]);
    return sampled;
  }

 private:
  std::mutex mutex_;
  // (layer, is bias): values by index. PyTorch lists a module's parameters as they were set.
  std::map<std::pair<char, bool>, std::map<std::int64_t, double>> values_;
};

// One step, as engine::TrainStep, or with losses that are not divided by their number.
StatusOr<StepResult> Step(Engine& engine, bool scale_wrt_gas,
                          const engine::BatchSource& next_batch) {
  if (scale_wrt_gas) return engine::TrainStep(engine, next_batch);
  for (std::int64_t i = 0; i < engine.gradient_accumulation_steps(); ++i) {
    engine.backward(engine.forward(next_batch().value()), /*scale_wrt_gas=*/false);
  }
  StatusOr<StepResult> step = engine.step();
  // The golden has the mean.
  step->loss /= static_cast<double>(engine.gradient_accumulation_steps());
  return step;
}

Trajectory Train(const json& golden) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  const int world_size = golden["world_size"];
  const auto checked = config::CheckConfig(golden["config"].dump(), "ds.json", world_size);
  DS_CHECK_MSG(checked.ok, checked.errors.empty() ? "" : checked.errors[0].message);
  const config::DataType training = checked.config.training_dtype();
  const at::ScalarType dtype = training == config::DataType::kFp16   ? at::kHalf
                               : training == config::DataType::kBf16 ? at::kBFloat16
                                                                     : at::kFloat;
  Trajectory result;
  std::map<std::string, Weights> weights;
  for (const char* steps : {"1", "30"}) weights[steps];
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    const auto model = MakeModel(golden.value("odd", false));
    const auto engine = Engine::create(model, checked.config, {.world = &world}).value();
    std::int64_t micro_step = 0;
    const auto next = [&]() -> StatusOr<Bundle> {
      return MakeBatch(micro_step++ * world.size() + world.rank(), dtype, golden);
    };
    for (std::size_t i = 0; i < golden["losses"].size(); ++i) {
      const double momentum = DeepSpeedApi(*engine).momentum();
      EXPECT_NEAR(golden.contains("betas") ? golden["betas"][i].get<double>() : momentum, momentum,
                  1e-15);
      const StepResult step = Step(*engine, golden.value("scale_wrt_gas", true), next).value();
      const auto wanted = weights.find(std::to_string(i + 1));
      if (wanted != weights.end()) wanted->second.Take(*engine);
      if (world.rank() == 0) result.steps.push_back(step);
    }
  });
  for (const auto& [steps, taken] : weights) result.parameters[steps] = taken.Sampled();
  return result;
}

// How near is near enough: relative, for the first step and for all thirty.
struct Tolerance {
  double first_loss, losses, first_parameters, parameters, norms;
};

Tolerance ToleranceOf(const json& config) {
  // One unit of the type: 2^-8 and 2^-11.
  if (config.value("torch_autocast", json::object()).value("dtype", "") == "float16")
    return {5e-4, 5e-4, 5e-4, 5e-4, 2e-3};
  if (config.contains("bf16") || config.contains("torch_autocast"))
    return {4e-3, 4e-3, 4e-3, 4e-3, 1e-2};
  if (config.contains("fp16")) {
    // Newton-Schulz iterations make 1e-6 of a rounding in fp32: enough, in 30 steps, for some
    // weights to be rounded to the other fp16 number, which the next gradients notice.
    const bool muon = config["optimizer"]["type"] == "Muon";
    return {5e-4, 5e-4, 5e-4, muon ? 5e-3 : 5e-4, 2e-3};
  }
  if (config.contains("communication_data_type")) return {1e-6, 4e-3, 4e-3, 4e-3, 1e-2};
  return {1e-6, 1e-4, 1e-6, 1e-4, 1e-4};
}

double Error(double ours, double theirs) {
  return std::abs(ours - theirs) / std::max(std::abs(theirs), 1e-2);
}

double LargestError(const std::vector<double>& ours, const json& theirs) {
  EXPECT_EQ(ours.size(), theirs.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    largest = std::max(largest, Error(ours[i], theirs[i]));
  }
  return largest;
}

// The number of a list that may have been written once for all steps.
double At(const json& values, std::size_t i) { return values.is_array() ? values[i] : values; }

void Compare(const Trajectory& ours, const json& golden) {
  const Tolerance tolerance = ToleranceOf(golden["config"]);
  double loss = 0.0, norm = 0.0;
  std::vector<std::size_t> skipped;
  for (std::size_t i = 0; i < ours.steps.size(); ++i) {
    const StepResult& step = ours.steps[i];
    SCOPED_TRACE("step " + std::to_string(i + 1));
    const double error = Error(step.loss, golden["losses"][i]);
    EXPECT_LE(error, i == 0 ? tolerance.first_loss : tolerance.losses);
    loss = std::max(loss, error);
    EXPECT_NEAR(step.lr, At(golden["lrs"], i), 1e-15);
    EXPECT_EQ(step.loss_scale, At(golden["scales"], i));
    if (step.skipped) skipped.push_back(i);
    if (golden["norms"].is_null() || golden["norms"][i].is_null()) continue;
    norm = std::max(norm, Error(step.grad_norm, golden["norms"][i]));
  }
  EXPECT_EQ(skipped, golden["skipped"].get<std::vector<std::size_t>>());
  EXPECT_LE(norm, tolerance.norms);
  const double first = LargestError(ours.parameters.at("1"), golden["parameters"]["1"]);
  const double last = LargestError(ours.parameters.at("30"), golden["parameters"]["30"]);
  EXPECT_LE(first, tolerance.first_parameters);
  EXPECT_LE(last, tolerance.parameters);
  std::printf("%-38s %5d %5d %7zu   %8.1e %8.1e %8.1e %8.1e   %8.1e\n",
              golden["name"].get_ref<const std::string&>().c_str(), golden["world_size"].get<int>(),
              golden["stage"].get<int>(), skipped.size(), loss, norm, first, last,
              tolerance.losses);
}

TEST(DeepSpeedTraining, ThirtyStepsOfEverySettingAreTheSame) {
  const auto path = std::filesystem::path(DS_SOURCE_DIR) / "tests/numerics/goldens/training.json";
  const json goldens = json::parse(ReadFile(path).value());
  std::printf(
      "Largest relative differences from DeepSpeed 0.19.8:\n%-38s %5s %5s %7s   %8s %8s %8s "
      "%8s   %8s\n",
      "setting", "ranks", "stage", "skipped", "losses", "norms", "param 1", "param 30", "allowed");
  for (const json& golden : goldens) {
    SCOPED_TRACE(golden["name"].get<std::string>() + ", " + golden["world_size"].dump() +
                 " ranks, stage " + golden["stage"].dump());
    Compare(Train(golden), golden);
  }
  EXPECT_GE(goldens.size(), 441u);
}

}  // namespace
}  // namespace ds::numerics
