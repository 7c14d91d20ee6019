// Where a config.json has two keys for one thing, the one that transformers takes counts.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/plan/model/families.h"
#include "tests/places.h"

namespace ds::models {
namespace {

using Json = nlohmann::ordered_json;

const Json& Goldens() {
  static const Json goldens =
      Json::parse(*ReadFile(DS_SOURCE_DIR "/tests/unit/models/goldens/config_keys.json"));
  return goldens;
}

void ExpectRope(const Json& golden, const std::string& key, const RopeSpec& rope,
                std::int64_t head_width) {
  const auto lengths = Goldens()["lengths"].get<std::vector<std::int64_t>>();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto expected = golden[key][i].get<std::vector<float>>();
    const std::vector<float> got = RopeFrequencies(rope, head_width, lengths[i]);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t j = 0; j < got.size(); ++j) {
      EXPECT_NEAR(got[j], expected[j], 1e-5F * expected[j]) << key << " " << lengths[i] << " " << j;
    }
  }
  EXPECT_NEAR(rope.attention_factor, golden[key + "_factor"].get<double>(), 1e-6);
}

TEST(ConfigKeys, OneOfRopeScalingAndRopeParametersCounts) {
  int compared = 0;
  for (const Json& golden : Goldens()["rope"]) {
    if (golden.contains("error")) continue;  // transformers cannot compute it
    SCOPED_TRACE(golden["config"].dump());
    const auto spec = ReadDecoderSpec(golden["config"], "config.json");
    if (!spec.ok()) {  // keys of Gemma 3 that transformers passes over in silence are refused
      EXPECT_NE(spec.status().message().find("'rope_scaling'"), std::string::npos)
          << spec.status().message();
      EXPECT_EQ(golden["config"]["model_type"], "gemma3_text");
      continue;
    }
    ExpectRope(golden, "full", spec->rope, spec->head_width);
    if (golden.contains("windowed")) {
      ExpectRope(golden, "windowed", *spec->windowed_rope, spec->head_width);
    }
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

TEST(ConfigKeys, OfTwoNamesOfASizeTheSameCountsAsInTransformers) {
  for (const Json& golden : Goldens()["sizes"]) {
    SCOPED_TRACE(golden["config"].dump());
    const auto spec = ReadDecoderSpec(golden["config"], "config.json");
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    const Json& sizes = golden["sizes"];
    EXPECT_EQ(spec->vocabulary, sizes["vocab_size"]);
    EXPECT_EQ(spec->width, sizes["hidden_size"]);
    EXPECT_EQ(spec->layers, sizes["layers"]);
    EXPECT_EQ(spec->heads, sizes["heads"]);
    EXPECT_EQ(spec->tied_head, sizes["tied"].get<bool>());
    EXPECT_EQ(sizes.value("kv_heads", spec->kv_heads), spec->kv_heads);
    EXPECT_EQ(sizes.value("max_positions", spec->max_positions), spec->max_positions);
    EXPECT_EQ(sizes.value("experts", spec->experts), spec->experts);
  }
  EXPECT_GT(Goldens()["sizes"].size(), 20U);
}

}  // namespace
}  // namespace ds::models
