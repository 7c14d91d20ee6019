// A PEFT folder is planned as it is loaded: as many elements are trained as PEFT trains.

#include "runtime/plan/memory/trainable_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/plan/model/families.h"
#include "runtime/plan/model/trained_names.h"
#include "tests/places.h"

namespace ds::models {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kGoldens = DS_SOURCE_DIR "/tests/numerics/goldens";

std::vector<BlockSizes> SizesOf(const std::string& base) {
  const auto json = nlohmann::ordered_json::parse(*ReadFile(kGoldens / base / "config.json"));
  return ListBlockSizes(*ReadDecoderSpec(json, "config.json"));
}

TEST(TrainableParametersTest, AdaptersOfPeftArePlannedAsTheirTensorsAre) {
  const auto goldens = nlohmann::json::parse(*ReadFile(kGoldens / "adapters/goldens.json"));
  for (const auto& [name, golden] : goldens.items()) {
    if (name == "peft") continue;
    SCOPED_TRACE(name);
    std::vector<BlockSizes> blocks = SizesOf(golden["base"]);
    const LoraSpec lora = ReadLoraSpec(kGoldens / "adapters" / name).value();
    const Status applied = ApplyTrainableParameters({.lora = lora}, &blocks);
    ASSERT_TRUE(applied.ok()) << applied.message();
    std::int64_t trained = 0;
    for (const BlockSizes& block : blocks) {
      for (const ParameterSize& parameter : block.parameters) {
        if (parameter.trained) trained += parameter.numel();
      }
    }
    EXPECT_EQ(trained, golden["trained"].get<std::int64_t>());
  }
}

// The layers that PEFT has given adapters for the same target_modules, by goldens of PEFT.
std::vector<std::string> LayersOf(const LoraSpec& spec) {
  std::vector<std::string> layers;
  for (const auto& [layer, adapter] : spec.layers) layers.push_back(layer);
  return layers;
}

StatusOr<LoraSpec> Choose(const std::string& base, const std::vector<std::string>& words) {
  LoraSpec spec{.rank = 4};
  DS_RETURN_IF_ERROR(ReadTargets(words, &spec));
  DS_RETURN_IF_ERROR(ChooseLayers(ListNames(SizesOf(base)), &spec));
  return spec;
}

TEST(TrainableParametersTest, TargetsMatchPeft) {
  const auto goldens = nlohmann::json::parse(*ReadFile(kGoldens / "adapters/goldens.json"));
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"all_linear", {"all-linear"}},
      {"all_linear", {}},
      {"gpt2_all", {"all-linear"}},
      {"qwen3", {"all-linear"}},
      {"mixtral", {"all-linear"}},
      {"full_names", {"model.layers.1.mlp.down_proj", "model.layers.0.self_attn.k_proj"}},
      {"full_names", {"model.layers.1.mlp.down_proj,model.layers.0.self_attn.k_proj"}},
      {"partial_names", {"mlp.gate_proj", "0.self_attn.o_proj"}},
      {"regex", {R"(.*layers\.\d+\.self_attn\.(q|v)_proj)"}},
      {"regex_lookahead", {R"(model\.layers\.(?!0)\d+\..*(up|down)_proj)"}},
      {"gpt2_regex", {R"(transformer\.h\.1\.(attn\.c_attn|mlp\.c_proj))"}},
      {"gemma2", {".*(q_proj|down_proj)"}},
      {"alpha_pattern", {"q_proj,v_proj"}},
      {"phi3", {"gate_up_proj", "qkv_proj"}}};
  for (const auto& [name, words] : cases) {
    SCOPED_TRACE(name);
    const LoraSpec peft = ReadLoraSpec(kGoldens / "adapters" / name).value();
    const auto ours = Choose(goldens[name]["base"], words);
    ASSERT_TRUE(ours.ok()) << ours.status().message();
    EXPECT_EQ(LayersOf(*ours), LayersOf(peft));
  }
}

TEST(TrainableParametersTest, TargetsThatNameNothingAreRefused) {
  const auto why = [](const std::vector<std::string>& words) {
    return Choose("llama", words).status().message();
  };
  EXPECT_THAT(why({"q_proj", "w1"}), HasSubstr("is called w1 (there are: down_proj, gate_proj, "));
  EXPECT_THAT(why({"q_proj,w1"}), HasSubstr("is called w1 ("));
  EXPECT_THAT(why({"q_poj"}), HasSubstr("did you mean 'q_proj'?"));
  EXPECT_THAT(
      why({"(q|v)_proj"}),
      HasSubstr("matches (q|v)_proj; a regular expression matches full names, which are like "
                "model.layers.0."));
  EXPECT_THAT(why({"q_proj("}), HasSubstr("is not understood"));
  EXPECT_THAT(why({"q_proj", "all-linear"}), HasSubstr("is called all-linear ("));
}

TEST(TrainableParametersTest, AnAdapterOfAnotherModelIsRefused) {
  std::vector<BlockSizes> blocks = SizesOf("gpt2");
  const LoraSpec lora = ReadLoraSpec(kGoldens / "adapters/regex").value();
  EXPECT_NE(
      ApplyTrainableParameters({.lora = lora}, &blocks).message().find("has no such linear layer"),
      std::string::npos);
}

}  // namespace
}  // namespace ds::models
