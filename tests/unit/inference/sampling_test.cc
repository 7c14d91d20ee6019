// What is chosen is what transformers' logits processors leave, and draws follow the probabilities.

#include "runtime/inference/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::inference {
namespace {

using ::testing::Each;
using ::testing::Ge;

constexpr float kRuledOut = -std::numeric_limits<float>::infinity();

std::vector<float> ReadLogits(const nlohmann::json& values) {
  std::vector<float> logits;
  for (const auto& value : values) {
    logits.push_back(value.is_null() ? kRuledOut : value.get<float>());
  }
  return logits;
}

void Process(const nlohmann::json& golden, std::vector<float>* logits) {
  const std::string name = golden["name"];
  const double value = golden["value"];
  const auto seen = golden["seen"].get<std::vector<std::int64_t>>();
  if (name == "repetition_penalty") return PenaliseRepetition(*logits, seen, value);
  if (name == "temperature") return ApplyTemperature(*logits, value);
  if (name == "top_k") return KeepTopK(*logits, static_cast<std::int64_t>(value));
  ASSERT_EQ(name, "top_p");
  KeepTopP(*logits, value);
}

TEST(SamplingTest, ProcessesLogitsLikeTransformers) {
  const nlohmann::json goldens = nlohmann::json::parse(
      ReadFile(DS_SOURCE_DIR "/tests/unit/inference/goldens/sampling.json").value());
  ASSERT_GE(goldens.size(), 20u);
  for (const nlohmann::json& golden : goldens) {
    std::vector<float> logits = ReadLogits(golden["logits"]);
    Process(golden, &logits);
    const std::vector<float> expected = ReadLogits(golden["out"]);
    ASSERT_EQ(logits.size(), expected.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_FLOAT_EQ(logits[i], expected[i])
          << golden["name"] << " " << golden["value"] << " token " << i;
    }
  }
}

TEST(SamplingTest, ATemperatureBeyondFp32LeavesTheMostLikelyToken) {
  for (const double temperature : {1e-38, 1e-44, 1e-60}) {
    for (std::vector<float> logits :
         {std::vector<float>{1.0F, 5.0F, 4.0F}, std::vector<float>{-9.0F, -4.0F, -5.0F}}) {
      const SamplingOptions options{.draws = true, .temperature = temperature};
      EXPECT_EQ(ChooseToken(logits, {}, options, 0.9), 1) << temperature;
    }
  }
}

TEST(SamplingTest, OneTokenIsLeftAtLeast) {
  std::vector<float> logits = {0.0F, 0.0F, 0.0F};
  KeepTopP(logits, 1e-9);
  int left = 0;
  for (const float logit : logits) left += logit != kRuledOut ? 1 : 0;
  EXPECT_EQ(left, 1);
}

TEST(SamplingTest, TheMostLikelyIsTheFirstOfTheLargest) {
  EXPECT_EQ(FindMostLikely(std::vector<float>{-1.0F, 3.0F, 3.0F, 2.0F}), 1);
}

TEST(SamplingTest, ADrawIsWhereTheSumOfProbabilitiesPassesTheNumber) {
  const auto log_of = [](double p) { return static_cast<float>(std::log(p)); };
  const std::vector<float> logits = {log_of(0.2), kRuledOut, log_of(0.5), log_of(0.3)};
  EXPECT_EQ(DrawToken(logits, 0.0), 0);
  EXPECT_EQ(DrawToken(logits, 0.19), 0);
  EXPECT_EQ(DrawToken(logits, 0.21), 2);
  EXPECT_EQ(DrawToken(logits, 0.69), 2);
  EXPECT_EQ(DrawToken(logits, 0.71), 3);
  EXPECT_EQ(DrawToken(logits, std::nextafter(1.0, 0.0)), 3);
  EXPECT_EQ(DrawToken(std::vector<float>{kRuledOut, 0.0F, kRuledOut}, 0.0), 1);
}

TEST(SamplingTest, NumbersDependOnSeedSampleAndIndexOnly) {
  EXPECT_EQ(UniformAt(1, 2, 3), UniformAt(1, 2, 3));
  std::vector<double> numbers;
  double sum = 0.0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    numbers.push_back(UniformAt(1, 2, i));
    sum += numbers.back();
  }
  EXPECT_THAT(numbers, Each(Ge(0.0)));
  EXPECT_THAT(numbers, Each(::testing::Lt(1.0)));
  EXPECT_NEAR(sum / 4000.0, 0.5, 0.02);
  EXPECT_NE(UniformAt(1, 2, 3), UniformAt(2, 2, 3));
  EXPECT_NE(UniformAt(1, 2, 3), UniformAt(1, 3, 3));
}

TEST(SamplingTest, AChoicePenalisesFirstAndThenSamplesRemainingTokens) {
  const std::vector<std::int64_t> seen = {2};
  std::vector<float> logits = {1.0F, 1.2F, 1.5F, -4.0F};
  EXPECT_EQ(ChooseToken(logits, seen, {}, 0.9), 2);
  logits = {1.0F, 1.2F, 1.5F, -4.0F};
  EXPECT_EQ(ChooseToken(logits, seen, {.repetition_penalty = 2.0}, 0.9), 1);
  for (const double uniform : {0.0, 0.5, 0.999}) {
    logits = {1.0F, 1.2F, 1.5F, -4.0F};
    EXPECT_EQ(ChooseToken(logits, seen, {.draws = true, .top_k = 1}, uniform), 2);
  }
  logits = {1.0F, 1.2F, 1.5F, -4.0F};
  EXPECT_EQ(ChooseToken(logits, seen, {.draws = true, .temperature = 0.01, .top_k = 0}, 0.5), 2);
}

}  // namespace
}  // namespace ds::inference
