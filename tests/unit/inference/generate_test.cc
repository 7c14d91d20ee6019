// Texts of every family are those of transformers' generate, whatever batch they run in.

#include "runtime/inference/generate.h"

#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/unit/models/golden_folder.h"

namespace ds::inference {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kEnd = 0;  // the end token of all folders of goldens

// Tokens of each text, and how it ended.
struct Texts : GenerationObserver {
  explicit Texts(std::size_t count) : tokens(count) {}
  void OnToken(std::size_t prompt, std::int64_t token) override {
    tokens.at(prompt).push_back(token);
  }
  void OnEnd(std::size_t prompt, Ending ending) override { endings.emplace(prompt, ending); }

  std::vector<std::vector<std::int64_t>> tokens;
  std::map<std::size_t, Ending> endings;
};

nlohmann::json ReadGoldens() {
  return nlohmann::json::parse(
      ReadFile(DS_SOURCE_DIR "/tests/unit/inference/goldens/texts.json").value());
}

struct Loaded {
  explicit Loaded(const std::string& folder)
      : spec(models::ReadModelConfig((models::GoldenFolder() / folder).string()).value().decoder),
        blocks(models::LoadGoldenModel(folder)) {
    for (const auto& block : blocks->blocks()) block->eval();
  }
  Texts Run(const std::vector<Prompt>& prompts, const GenerateOptions& options) const {
    Texts texts(prompts.size());
    Generate(*blocks, spec, prompts, options, texts);
    return texts;
  }

  models::DecoderSpec spec;
  std::shared_ptr<BlockList> blocks;
};

class GenerateGolden : public ::testing::TestWithParam<std::string> {
 protected:
  // All prompts in one batch, against those that transformers ran one by one.
  void ExpectTexts(const std::string& kind, double penalty) {
    const nlohmann::json goldens = ReadGoldens();
    const nlohmann::json& golden = goldens["texts"][GetParam()];
    std::vector<Prompt> prompts;
    for (const auto& text : golden) {
      prompts.push_back({.tokens = text["prompt"],
                         .number = prompts.size(),
                         .most_new_tokens = goldens["new_tokens"]});
    }
    const Texts texts =
        Loaded("families/" + GetParam())
            .Run(prompts, {.sampling = {.repetition_penalty = penalty}, .end_tokens = {kEnd}});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      std::vector<std::int64_t> expected = golden[i][kind];
      const bool ends = !expected.empty() && expected.back() == kEnd;
      if (ends) expected.pop_back();
      EXPECT_EQ(texts.tokens[i], expected) << "prompt " << i;
      EXPECT_EQ(texts.endings.at(i), ends ? Ending::kEndToken : Ending::kLength);
    }
  }
};

TEST_P(GenerateGolden, TheMostLikelyTextIsTransformers) { ExpectTexts("greedy", 1.0); }

TEST_P(GenerateGolden, WithARepetitionPenaltyToo) { ExpectTexts("penalised", 1.3); }

std::vector<std::string> Families() {
  const nlohmann::json goldens = ReadGoldens();
  std::vector<std::string> names;
  for (const auto& [name, texts] : goldens["texts"].items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, GenerateGolden, ::testing::ValuesIn(Families()),
                         [](const auto& info) { return info.param; });

std::vector<Prompt> SomePrompts() {
  return {{.tokens = {5, 6, 7}, .number = 0, .most_new_tokens = 12},
          {.tokens = {100}, .number = 1, .most_new_tokens = 4},
          {.tokens = {9, 8, 200, 3, 3, 17}, .number = 2, .most_new_tokens = 20}};
}

TEST(GenerateTest, SamplesDoNotDependOnTheBatch) {
  const Loaded model("llama");
  const GenerateOptions options{.sampling = {.draws = true, .temperature = 1.2, .top_p = 0.9},
                                .seed = 3};
  const std::vector<Prompt> prompts = SomePrompts();
  const Texts together = model.Run(prompts, options);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(model.Run({prompts[i]}, options).tokens[0], together.tokens[i]);
    EXPECT_EQ(together.tokens[i].size(), static_cast<std::size_t>(prompts[i].most_new_tokens));
  }
  GenerateOptions other = options;
  other.seed = 4;
  EXPECT_NE(model.Run(prompts, other).tokens, together.tokens);
}

TEST(GenerateTest, AnEndTokenEndsATextAndIsNotPartOfIt) {
  const Loaded model("llama");
  const std::vector<Prompt> prompts = {SomePrompts()[2]};
  const std::vector<std::int64_t> full = model.Run(prompts, {}).tokens[0];
  ASSERT_EQ(full.size(), 20u);
  const Texts cut = model.Run(prompts, {.end_tokens = {1'000, full[5]}});
  const auto first = std::find(full.begin(), full.end(), full[5]);
  EXPECT_EQ(cut.tokens[0], std::vector<std::int64_t>(full.begin(), first));
  EXPECT_EQ(cut.endings.at(0), Ending::kEndToken);
}

TEST(GenerateTest, StopsTheModelWhenAllPromptsAreDone) {
  struct Deaf : Texts {
    using Texts::Texts;
    bool accepts_more() const override { return tokens[2].size() < 3; }
  };
  for (const char* folder : {"llama", "families/llama_dynamic"}) {
    const Loaded model(folder);
    Deaf texts(3);
    Generate(*model.blocks, model.spec, SomePrompts(), {}, texts);
    EXPECT_EQ(texts.tokens[2].size(), 3u) << folder;
    EXPECT_EQ(texts.endings.count(2), 0u) << folder;
  }
}

TEST(GenerateTest, LogitsThatAreNotFiniteChooseNoToken) {
  const Loaded model("llama");
  {
    const c10::NoGradGuard no_grad;
    model.blocks->block(1).parameters().front().fill_(std::nan(""));
  }
  for (const bool draws : {false, true}) {
    EXPECT_THROW(model.Run(SomePrompts(), {.sampling = {.draws = draws}}), c10::Error);
  }
}

}  // namespace
}  // namespace ds::inference
