// Decoders with an MLP next to their experts (AddResidualMlp) compute what transformers' models do
// with deepspeed.moe.layer.MoE(use_residual=True) in the place of their experts
// (goldens/residual_decoders.json).

#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lora.h"
#include "runtime/plan/model/count_parameters.h"
#include "tests/support/program.h"
#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr double kMixTolerance = 2e-5;

bool IsOfResidual(const std::string& name) {
  return name.find(".residual_mlp.") != std::string::npos ||
         name.find(".coefficient.") != std::string::npos;
}

// Values that make_residual_decoder_goldens.py gives the parameter at that place of all names.
at::Tensor ValueOf(int place, const at::Tensor& parameter) {
  const at::Tensor waves =
      at::arange(1, parameter.numel() + 1, at::kDouble).mul(1.7).add(place).sin();
  return waves.mul(0.2).to(at::kFloat).view(parameter.sizes());
}

void LoadResidualModel(const WeightReader& reader, const BlockList& model) {
  c10::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> residual;  // by name
  for (const auto& block : model.blocks()) {
    AllocateParameters(*block);
    for (const auto& item : block->named_parameters()) {
      const std::string name = block->FullName(item.key());
      if (IsOfResidual(name)) {
        residual[name] = item.value();
      } else {
        ASSERT_TRUE(reader.Read(name, 0, item.value().view(-1)).ok()) << name;
      }
    }
  }
  int place = 0;
  for (const auto& [name, value] : residual) value.copy_(ValueOf(place++, value));
}

ModelConfig ReadResidual(const std::string& name) {
  ModelConfig config = ReadModelConfig((GoldenFolder() / "families" / name).string()).value();
  AddResidualMlp(&config.decoder);
  return config;
}

// `gate`: none keeps the model's own routing.
std::shared_ptr<BlockList> BuildOf(const nlohmann::json& golden,
                                   const std::optional<config::ExpertGateConfig>& gate) {
  ModelConfig config = ReadResidual(golden["model"]);
  config.decoder.experts_per_token = golden["per_token"];
  config.decoder.normalises_routes = golden["normalises"];
  config.decoder.expert_gate = gate;
  auto model = BuildModel(config, at::kFloat);
  LoadResidualModel(*WeightReader::Open(config.folder).value(), *model);
  return model;
}

config::ExpertGateConfig DeepSpeedsGate(const nlohmann::json& options) {
  config::ExpertGateConfig gate{.selects_at_random = false, .draws_second = false};
  gate.capacity_factor = options.value("capacity_factor", 1.0);
  gate.evaluation_capacity_factor = gate.capacity_factor;
  gate.min_capacity = options.value("min_capacity", 4);
  gate.drops_tokens = options.value("drop_tokens", true);
  return gate;
}

void ExpectGolden(const nlohmann::json& golden, const BlockList& model) {
  const std::string family = golden["model"];
  const Bundle result = RunBlocks(
      model, GoldenBatch(ReadGolden("families/" + family), golden["batch"].get<std::int64_t>()));
  const double loss = golden["loss"];
  EXPECT_NEAR(result.loss.item<double>(), loss, kMixTolerance * loss);
  result.loss.backward();
  ExpectGoldenGradients(model, golden["gradients"], kMixTolerance);
}

TEST(ResidualDecoder, HasTheLossAndGradientsOfDeepSpeedsResidualLayer) {
  int dropping = 0;
  for (const nlohmann::json& golden : ReadGolden("residual_decoders")) {
    SCOPED_TRACE(golden["model"].get<std::string>() + " " + golden["options"].dump());
    dropping += golden["dropped"] > 0 ? 1 : 0;
    ExpectGolden(golden, *BuildOf(golden, DeepSpeedsGate(golden["options"])));
    if (golden["own"] == true) ExpectGolden(golden, *BuildOf(golden, std::nullopt));
  }
  EXPECT_EQ(dropping, 3);
}

TEST(ResidualDecoder, ItsPartsAreCountedAndStartAsOtherParts) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    const ModelConfig config = ReadResidual(family);
    const auto model = BuildModel(config, at::kFloat);
    std::int64_t count = 0;
    for (const auto& block : model->blocks()) {
      AllocateParameters(*block);
      block->Initialize(/*seed=*/1);
      for (const auto& item : block->named_parameters()) {
        count += item.value().numel();
        if (!IsOfResidual(item.key())) continue;
        const double spread = item.value().std().item<double>();
        EXPECT_NEAR(spread, item.value().dim() > 1 ? 0.3 : 0.0, 0.1) << item.key();
      }
    }
    EXPECT_EQ(count, CountParameters(config.decoder)->all) << family;
  }
}

// The MLP and the product that weights it are linear layers, as in DeepSpeed.
TEST(ResidualDecoder, AdaptersAreAddedToItsParts) {
  LoraSpec lora{.rank = 2};
  const auto model = BuildModel(ReadResidual("qwen3_moe"), at::kFloat);
  ASSERT_TRUE(AddLora(*model, &lora).ok());
  for (const char* target : {"coefficient", "down_proj", "gate_proj", "up_proj"}) {
    EXPECT_THAT(lora.targets, Contains(target));
  }
}

TEST(ResidualDecoder, NoFolderIsWrittenOrReadForIt) {
  const ModelConfig config = ReadResidual("mixtral");
  const auto model = BuildModel(config, at::kFloat);
  const testing::TemporaryFolder folder;
  const auto writer = ModelWriter::Create(folder.path() / "hf", config, *model);
  EXPECT_THAT(writer.status().message(),
              HasSubstr("transformers has no model with an MLP next to its experts"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "hf"));
  const auto unused = WeightReader::Open(config.folder).value()->Check(*model);
  EXPECT_THAT(unused.status().message(), HasSubstr("block_sparse_moe.residual_mlp"));
}

}  // namespace
}  // namespace ds::models
