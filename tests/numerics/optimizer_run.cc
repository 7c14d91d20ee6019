#include "tests/numerics/optimizer_run.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "runtime/base/files.h"
#include "runtime/base/isa_probe.h"
#include "runtime/config/file/check_config.h"
#include "runtime/device/dtype_policy.h"
#include "tests/places.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using Json = nlohmann::json;

at::Tensor Values(const Json& numbers) {
  return at::tensor(numbers.get<std::vector<double>>()).to(at::kFloat);
}

std::string PrecisionOf(const Json& golden) { return golden.value("precision", "fp32"); }

std::int64_t AccumulationOf(const Json& golden) { return golden.value("accumulation", 1); }

config::DsConfig ConfigOf(const Json& golden, Setting setting) {
  Json zero = {{"stage", setting.stage}};
  if (golden.contains("zenflow")) {
    zero["offload_optimizer"] = {{"device", "cpu"}};
    zero["zenflow"] = golden["zenflow"];
  }
  const Json json = {
      {"train_micro_batch_size_per_gpu", 1},
      {"gradient_accumulation_steps", AccumulationOf(golden)},
      {"gradient_clipping", golden["gradient_clipping"]},
      {"optimizer", golden["optimizer"]},
      {"fp16", {{"enabled", PrecisionOf(golden) == "fp16"}, {"initial_scale_power", 8}}},
      {"bf16", {{"enabled", PrecisionOf(golden) == "bf16"}}},
      {"zero_optimization", zero}};
  const auto checked = config::CheckConfig(json.dump(), "ds_config.json", setting.world_size);
  DS_CHECK_MSG(checked.ok, checked.errors.empty() ? "" : checked.errors[0].message);
  return checked.config;
}

Status ReadFirstValues(const std::string& name, std::int64_t first, const at::Tensor& values) {
  static const Json first_values = ReadGoldens("optimizers.json")["first"];
  values.copy_(Values(first_values[name]).view({-1}).narrow(0, first, values.numel()));
  return OkStatus();
}

// As scripts/goldens groups the parameters of these runs.
optim::ParameterGrouper GrouperOf(const Json& golden, const BlockList& model) {
  if (!golden.value("groups", false)) return optim::OneGroup;
  return optim::WithLayerwiseRates(optim::NoDecayOnNormsAndBiases, model.size(), 0.8);
}

}  // namespace

Json ReadGoldens(const std::string& file) {
  const auto folder = std::filesystem::path(DS_SOURCE_DIR) / "tests/numerics/goldens";
  return Json::parse(ReadFile(folder / file).value());
}

Outcome TrainAs(const Json& golden, Setting setting) {
  std::set<int> stops;
  for (const auto& [steps, parameters] : golden["after"].items()) stops.insert(std::stoi(steps));
  Outcome outcome;
  // Before the process's first bf16 product.
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  testing::RunRanks(setting.world_size, [&](comm::Communicator& world) {
    const TinyRun run{.stage = setting.stage, .accumulation = AccumulationOf(golden)};
    const config::DsConfig config = ConfigOf(golden, setting);
    const auto model = MakeTinyModel(run.shape, precision::ToScalarType(config.training_dtype()));
    const EngineOptions options{.world = &world,
                                .read_values = ReadFirstValues,
                                .parameter_group = GrouperOf(golden, *model)};
    const auto engine = Engine::create(model, config, options).value();
    for (const int steps : stops) {
      const auto results =
          TrainTiny(*engine, run, steps - static_cast<int>(engine->finished_steps()));
      const Parameters all = ExportAll(*engine);
      if (world.rank() != 0) continue;
      for (const StepResult& result : results) outcome.losses.push_back(result.loss);
      outcome.after[steps] = all;
    }
  });
  return outcome;
}

Tolerance ToleranceOf(const Json& golden) {
  const std::string precision = PrecisionOf(golden);
  if (precision == "fp32") return {1e-5, 1e-5, 1e-4};
  const double spacing = precision == "bf16" ? 0x1p-7 : 0x1p-10;
  return {spacing, spacing, 2 * spacing};
}

double DistanceTo(const Json& expected, const Parameters& ours) {
  double largest = 0.0;
  for (const auto& [name, numbers] : expected.items()) {
    const at::Tensor theirs = Values(numbers);
    const double distance = (ours.at(name).flatten() - theirs).abs().max().item<double>();
    largest = std::max(largest, distance / theirs.abs().max().item<double>());
  }
  return largest;
}

Distances ExpectLossesOf(const Json& golden, const Outcome& ours, double tolerance) {
  const std::size_t last = golden["losses"].size();
  for (std::size_t i = 0; i < last; ++i) {
    EXPECT_NEAR(ours.losses[i], golden["losses"][i].get<double>(), tolerance) << "step " << i + 1;
  }
  const Json& after = golden["after"];
  return {
      .first_step = DistanceTo(after["1"], ours.after.at(1)),
      .last_step = DistanceTo(after[std::to_string(last)], ours.after.at(static_cast<int>(last)))};
}

}  // namespace ds::tests
