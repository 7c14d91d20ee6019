// Twenty steps of training adapters, DoRA's and those of quantised models among them, give what
// PEFT gives in a single process: losses, norms, the adapters and the merged weights, at every ZeRO
// stage, and the frozen model stays as it is.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "runtime/models/layers/lora.h"
#include "tests/numerics/golden_run.h"
#include "tests/places.h"

namespace ds::numerics {
namespace {

struct LoraCase {
  const char* base;
  const char* adapter;
  bool weights_are_in_out;
  const char* quantized;
};

constexpr LoraCase kCases[] = {{"llama", "llama", false, ""},
                               {"gpt2", "gpt2_rslora", true, ""},
                               {"llama", "llama_dora", false, ""},
                               {"llama", "llama_saves", false, ""},
                               {"families/qwen2", "qwen2_ties", false, ""},
                               {"llama", "llama_nf4", false, "nf4"},
                               {"llama", "llama_nf4_double", false, "nf4-double"},
                               {"gpt2", "gpt2_dora_int8", true, "int8"}};

void ExpectMeasures(const at::Tensor& tensor, const nlohmann::json& golden) {
  const at::Tensor flat = tensor.to(at::kDouble).flatten();
  const at::Tensor waves = at::arange(flat.numel(), at::kDouble).cos();
  const double norm = golden["norm"];
  EXPECT_NEAR(flat.norm().item<double>(), norm, 2e-4 * norm);
  EXPECT_NEAR(flat.dot(waves).item<double>(), golden["probe"].get<double>(), 2e-3 * norm);
}

void ExpectGolden(const GoldenRunResult& result, const LoraCase& of) {
  const auto golden = nlohmann::json::parse(
      *ReadFile(DS_SOURCE_DIR "/tests/numerics/goldens/lora/" + std::string(of.adapter) + ".json"));
  const nlohmann::json& run = golden["runs"][0];
  ASSERT_EQ(result.steps.size(), run["losses"].size());
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    EXPECT_NEAR(result.steps[i].loss, run["losses"][i].get<double>(), 5e-5) << "step " << i + 1;
    const double norm = run["grad_norms"][i];
    EXPECT_NEAR(result.steps[i].grad_norm, norm, 5e-4 * norm) << "step " << i + 1;
  }
  const std::string folder =
      std::string(DS_SOURCE_DIR "/tests/numerics/goldens/lora/") + of.adapter;
  models::LoraMerger merger(*models::ReadLoraSpec(folder), of.weights_are_in_out);
  std::size_t adapters = 0;
  for (const auto& [name, value] : result.parameters) {
    const auto trained = golden["trained"].find("base_model.model." + name);
    EXPECT_TRUE(!models::IsLoraParameter(name) || trained != golden["trained"].end()) << name;
    if (trained == golden["trained"].end()) continue;
    SCOPED_TRACE(name);
    ExpectMeasures(value, *trained);
    merger.Take(name, value);
    ++adapters;
  }
  EXPECT_EQ(adapters, golden["trained"].size());
  for (const auto& [name, measures] : golden["merged"].items()) {
    SCOPED_TRACE(name);
    ExpectMeasures(merger.Merge(name, result.parameters.at(name)), measures);
  }
}

TEST(Lora, GivesPeftsAdaptersAtEveryStage) {
  for (const LoraCase& each : kCases) {
    const GoldenRun none{
        .family = each.base, .adapter = each.adapter, .quantized = each.quantized, .steps = 0};
    const auto untouched = Train(none).parameters;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(each.adapter) + ", stage " + std::to_string(stage));
      const GoldenRun run{.family = each.base,
                          .adapter = each.adapter,
                          .quantized = each.quantized,
                          .world_size = 2,
                          .stage = stage};
      const GoldenRunResult result = Train(run);
      ExpectGolden(result, each);
      const auto full = models::ReadLoraSpec(DS_SOURCE_DIR "/tests/numerics/goldens/lora/" +
                                             std::string(each.adapter))
                            ->full;
      for (const auto& [name, value] : untouched) {
        if (models::IsLoraParameter(name) || full.contains(name)) continue;
        EXPECT_TRUE(value.equal(result.parameters.at(name))) << name;
      }
    }
  }
}

}  // namespace
}  // namespace ds::numerics
