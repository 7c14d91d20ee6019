#include "runtime/inference/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::inference {
namespace {

using ::ds::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StatusOr<GenerationConfig> Parse(std::string_view text) {
  return ParseGenerationConfig(text, "generation_config.json");
}

TEST(GenerationConfigTest, AbsentKeysHaveTransformersDefaults) {
  const GenerationConfig config = Parse("{}").value();
  EXPECT_FALSE(config.sampling.draws);
  EXPECT_EQ(config.sampling.temperature, 1.0);
  EXPECT_EQ(config.sampling.top_k, 50);
  EXPECT_EQ(config.sampling.top_p, 1.0);
  EXPECT_EQ(config.sampling.repetition_penalty, 1.0);
  EXPECT_FALSE(config.max_new_tokens.has_value());
  EXPECT_THAT(config.end_tokens, IsEmpty());
}

// As Llama 3.1 and Qwen 2.5 have it.
TEST(GenerationConfigTest, PublishedOnesAreRead) {
  const GenerationConfig config = Parse(R"({
      "bos_token_id": 128000, "do_sample": true, "eos_token_id": [128001, 128008, 128009],
      "pad_token_id": 151643, "repetition_penalty": 1.05, "temperature": 0.7, "top_p": 0.8,
      "top_k": 20, "max_length": 4096, "max_new_tokens": 2048, "num_beams": 1,
      "transformers_version": "4.42.3", "_from_model_config": true, "use_cache": true})")
                                      .value();
  EXPECT_TRUE(config.sampling.draws);
  EXPECT_EQ(config.sampling.repetition_penalty, 1.05);
  EXPECT_EQ(config.sampling.temperature, 0.7);
  EXPECT_EQ(config.sampling.top_p, 0.8);
  EXPECT_EQ(config.sampling.top_k, 20);
  EXPECT_EQ(config.max_new_tokens, 2048);
  EXPECT_EQ(config.max_length, 4096);
  EXPECT_THAT(config.end_tokens, ElementsAre(128001, 128008, 128009));
}

TEST(GenerationConfigTest, RefusesKeysThatWouldChangeTheText) {
  EXPECT_THAT(Parse(R"({"num_beams": 4})").status().message(),
              HasSubstr("generation_config.json: num_beams = 4: this is not built"));
  EXPECT_THAT(Parse(R"({"suppress_tokens": [1]})").status().message(),
              HasSubstr("suppress_tokens = [1]"));
  EXPECT_THAT(Parse(R"({"some_new_key": 2})").status().message(), HasSubstr("some_new_key = 2"));
  EXPECT_THAT(Parse(R"({"temperature": -0.5})").status().message(),
              HasSubstr("temperature must be a number from 0.0"));
  EXPECT_THAT(Parse(R"({"top_p": 0.0})").status().message(),
              HasSubstr("top_p must be a number above 0.0"));
  EXPECT_THAT(Parse(R"({"max_length": 0})").status().message(),
              HasSubstr("max_length must be a whole number from 1"));
  EXPECT_EQ(Parse(R"({"temperature": 0})")->sampling.temperature, 0.0) << "nothing is drawn";
  EXPECT_THAT(Parse(R"({"top_k": -1})").status().message(),
              HasSubstr("top_k must be a whole number from 0"));
  EXPECT_THAT(Parse(R"({"eos_token_id": "</s>"})").status().message(),
              HasSubstr("eos_token_id must be a token id or a list of them"));
  EXPECT_THAT(Parse(R"({"do_sample": 1})").status().message(),
              HasSubstr("do_sample must be true or false"));
  EXPECT_THAT(Parse("[]").status().message(), HasSubstr("no JSON object"));
  EXPECT_TRUE(Parse(R"({"suppress_tokens": [], "num_beams": null, "typical_p": 1.0})").ok());
}

TEST(GenerationConfigTest, TheEndTokensMayBeInTheConfig) {
  TemporaryFolder folder;
  const nlohmann::ordered_json model = {{"eos_token_id", 2}};
  EXPECT_THAT(ReadGenerationConfig(folder.path(), model, false)->end_tokens, ElementsAre(2));
  const std::string text = R"({"eos_token_id": 7, "num_beams": 4})";
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "generation_config.json", text).ok());
  EXPECT_FALSE(ReadGenerationConfig(folder.path(), model, false).ok());
  EXPECT_THAT(ReadGenerationConfig(folder.path(), model, true)->end_tokens, ElementsAre(7));
}

}  // namespace
}  // namespace ds::inference
