// Snippets of ds_configs as guides, tutorials and other programs show them, with what becomes of
// each: understood, or refused with the right key (goldens/guide_snippets.json).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/config/file/check_config.h"
#include "runtime/config/keys/registry.h"
#include "tests/unit/config/goldens.h"

namespace ds::config {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// All messages, a line each.
std::string Said(const CheckResult& result) {
  std::string all;
  for (const auto* issues : {&result.errors, &result.warnings}) {
    for (const Issue& issue : *issues) all += issue.message + "\n";
  }
  return all;
}

TEST(GuideSnippetsTest, AreUnderstoodOrLeadToTheRightKey) {
  for (const json& snippet : ReadGolden("guide_snippets.json")) {
    SCOPED_TRACE(snippet.at("from").get<std::string>());
    const std::string text =
        snippet.contains("text") ? snippet["text"].get<std::string>() : snippet["config"].dump();
    const CheckResult result = CheckConfig(text, "ds.json", snippet.at("ranks").get<int>());
    const std::string said = Said(result);
    EXPECT_EQ(result.ok, snippet.at("outcome") == "good") << said;
    const json sentences = snippet.value("says", json::array());
    for (const json& sentence : sentences) {
      EXPECT_THAT(said, HasSubstr(sentence.get<std::string>()));
    }
    EXPECT_THAT(said, ::testing::Not(HasSubstr("did you mean")));
    const json resolved = snippet.value("resolved", json::object());
    for (const auto& [path, value] : resolved.items()) {
      EXPECT_EQ(result.resolved.at(nlohmann::ordered_json::json_pointer(path)), value) << path;
    }
    if (snippet.contains("recomputes")) {
      EXPECT_EQ(result.config.activation_checkpointing.asked_for, snippet["recomputes"]);
    }
  }
}

// A key that is resolved from another name is read as the same again.
TEST(GuideSnippetsTest, ResolvedConfigsAreReadAlike) {
  for (const json& snippet : ReadGolden("guide_snippets.json")) {
    if (snippet.at("outcome") != "good") continue;
    SCOPED_TRACE(snippet.at("from").get<std::string>());
    const int ranks = snippet.at("ranks");
    const CheckResult first = CheckConfig(snippet["config"].dump(), "ds.json", ranks);
    for (const std::string& text : {ToDsConfigJson(first), ToResolvedConfigJson(first).dump()}) {
      const CheckResult again = CheckConfig(text, "again.json", ranks);
      ASSERT_TRUE(again.ok) << Said(again);
      EXPECT_EQ(again.config.parallel.tensor, first.config.parallel.tensor);
      EXPECT_EQ(again.config.parallel.expert, first.config.parallel.expert);
      EXPECT_EQ(again.config.moe, first.config.moe);
      EXPECT_EQ(again.config.activation_checkpointing.asked_for,
                first.config.activation_checkpointing.asked_for);
    }
  }
}

TEST(ForeignNamesTest, AreFoundByMeaningAndMisspellingsByLetters) {
  const auto said = [](const std::string& text) { return Said(CheckConfig(text, "ds.json", 1)); };
  EXPECT_THAT(said(R"({"train_batch_size": 1, "optimizer": {"name": "Adam"}})"),
              HasSubstr("unknown key optimizer.name: write \"type\": \"Adam\""));
  EXPECT_THAT(said(R"({"train_batch_size": 1, "gradient_cliping": 1.0})"),
              HasSubstr("did you mean 'gradient_clipping'?"));
  // Nothing is guessed for a word that is no misspelling of any.
  for (const char* word : {"mixture", "horizon", "expert_size", "trace_file", "enabled"}) {
    EXPECT_THAT(said("{\"train_batch_size\": 1, \"" + std::string(word) + "\": 3}"),
                ::testing::Not(HasSubstr("did you mean")))
        << word;
  }
  // Values of another kind are not meant.
  EXPECT_THAT(said(R"({"train_batch_size": 1, "stage": {"a": 1}})"),
              ::testing::Not(HasSubstr("did you mean")));
  EXPECT_TRUE(CheckConfig(R"({"train_batch_size": 1, "zero_optimization": {"stage": 1},
      "train_iters": 5})",
                          "ds.json", JobFacts{.world_size = 1, .ignore_unknown_keys = true})
                  .ok);
}

}  // namespace
}  // namespace ds::config
