// A PEFT folder is planned as it is loaded: as many elements are trained as PEFT trains.

#include "runtime/models/memory/trained_part.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/models/spec/families.h"
#include "tests/places.h"

namespace ds::models {
namespace {

const std::filesystem::path kGoldens = DS_SOURCE_DIR "/tests/numerics/goldens";

std::vector<BlockSizes> SizesOf(const std::string& base) {
  const auto json = nlohmann::ordered_json::parse(*ReadFile(kGoldens / base / "config.json"));
  return ListBlockSizes(*ReadDecoderSpec(json, "config.json"));
}

TEST(TrainedPartTest, AdaptersOfPeftArePlannedAsTheirTensorsAre) {
  const auto goldens = nlohmann::json::parse(*ReadFile(kGoldens / "adapters/goldens.json"));
  for (const auto& [name, golden] : goldens.items()) {
    if (name == "peft") continue;
    SCOPED_TRACE(name);
    std::vector<BlockSizes> blocks = SizesOf(golden["base"]);
    const LoraSpec lora = ReadLoraSpec(kGoldens / "adapters" / name).value();
    const Status applied = ApplyTrainedPart({.lora = lora}, &blocks);
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

TEST(TrainedPartTest, AnAdapterOfAnotherModelIsRefused) {
  std::vector<BlockSizes> blocks = SizesOf("gpt2");
  const LoraSpec lora = ReadLoraSpec(kGoldens / "adapters/regex").value();
  EXPECT_NE(ApplyTrainedPart({.lora = lora}, &blocks).message().find("has no such linear layer"),
            std::string::npos);
}

}  // namespace
}  // namespace ds::models
