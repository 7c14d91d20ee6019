// Decoders whose experts are chosen by a gate with capacity compute what transformers' models do
// with DeepSpeed's gates in the places of their routers (goldens/gated_decoders.json).

#include <gtest/gtest.h>

#include "runtime/models/decoder/build_model.h"
#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

constexpr double kGateTolerance = 2e-5;

// Draws nothing.
config::ExpertGateConfig GateOf(const nlohmann::json& options) {
  config::ExpertGateConfig gate{.selects_at_random = false, .draws_second = false};
  gate.capacity_factor = options.value("capacity_factor", 1.0);
  gate.evaluation_capacity_factor = gate.capacity_factor;
  gate.min_capacity = options.value("min_capacity", 4);
  gate.drops_tokens = options.value("drop_tokens", true);
  return gate;
}

std::shared_ptr<BlockList> LoadGatedModel(const std::string& name,
                                          const config::ExpertGateConfig& gate) {
  ModelConfig config = ReadModelConfig((GoldenFolder() / "families" / name).string()).value();
  config.decoder.expert_gate = gate;
  std::shared_ptr<BlockList> model = BuildModel(config, at::kFloat);
  const auto reader = WeightReader::Open(config.folder).value();
  for (const auto& block : model->blocks()) LoadWeights(*reader, *block);
  return model;
}

// Runs the model as the engine does, which says of each block where its tokens stand.
Bundle RunAt(BlockList& model, Bundle bundle, std::uint64_t step) {
  for (int i = 0; i < model.size(); ++i) {
    bundle.random = {.key = step, .block = i};
    bundle = model.block(i).forward(std::move(bundle));
  }
  return bundle;
}

TEST(GatedDecoder, HasTheLossAndGradientsOfDeepSpeedsGates) {
  for (const nlohmann::json& golden : ReadGolden("gated_decoders")) {
    const std::string name = golden["model"];
    SCOPED_TRACE(name + " " + golden["options"].dump());
    const auto model = LoadGatedModel(name, GateOf(golden["options"]));
    const Bundle batch =
        GoldenBatch(ReadGolden("families/" + name), golden["batch"].get<std::int64_t>());
    const Bundle result = RunAt(*model, batch, 1);
    const double loss = golden["loss"];
    EXPECT_NEAR(result.loss.item<double>(), loss, kGateTolerance * loss);
    result.loss.backward();
    ExpectGoldenGradients(*model, golden["gradients"], kGateTolerance);
  }
}

// A pass that is computed again draws the same; another step draws otherwise; evaluation draws
// nothing of the router's input.
TEST(GatedDecoder, DrawsAreThoseOfTheTokensPlaces) {
  config::ExpertGateConfig gate{.capacity_factor = 4.0,
                                .evaluation_capacity_factor = 4.0,
                                .noise = config::ExpertGateNoise::kJitter,
                                .draws_second = false};
  const auto model = LoadGatedModel("mixtral", gate);
  const Bundle batch = GoldenBatch(ReadGolden("families/mixtral"), 4);
  const auto loss = [&](std::uint64_t step) {
    return RunAt(*model, batch, step).loss.item<double>();
  };
  EXPECT_EQ(loss(1), loss(1));
  EXPECT_NE(loss(1), loss(2));
  for (const auto& block : model->blocks()) block->eval();
  EXPECT_EQ(loss(1), loss(2));
}

}  // namespace
}  // namespace ds::models
