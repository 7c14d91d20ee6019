// Trainer's shares of all steps, and the steps at which it saves and evaluates.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/translate/sources.h"
#include "tests/unit/cli/translation_remarks.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

Translation StepArguments(const std::string& text) {
  return TranslateTrainingArguments(Json::parse(text), {});
}

// The counts are those of TrainerState.compute_steps of transformers 5.24.
TEST(TrainerStepsTest, SharesOfTheStepsAreRoundedUp) {
  const auto flags = [](const std::string& rest) {
    return StepArguments(R"({"eval_strategy": "steps", )" + rest + "}").flags;
  };
  EXPECT_EQ(flags(R"("max_steps": 100, "save_steps": 0.333)")["save_every"], 34);
  EXPECT_EQ(flags(R"("max_steps": 100, "save_steps": 0.001)")["save_every"], 1);
  EXPECT_EQ(flags(R"("max_steps": 10, "eval_steps": 0.25)")["eval_every"], 3);
  EXPECT_EQ(flags(R"("max_steps": 7, "logging_steps": 0.5)")["eval_every"], 4);
  EXPECT_EQ(flags(R"("max_steps": 7, "logging_steps": 3, "eval_steps": 0)")["eval_every"], 3);
  EXPECT_EQ(flags(R"("max_steps": 10, "save_steps": 5.0)")["save_every"], 5);
  EXPECT_THAT(Missing(StepArguments(R"({"max_steps": 10, "save_steps": 7.5})")),
              ElementsAre("save_steps"));
}

TEST(TrainerStepsTest, TheBestModelIsSavedAfterAnEvaluation) {
  const auto missing = [](const std::string& steps) {
    return Missing(StepArguments(R"({"max_steps": 100, "load_best_model_at_end": true,
                                 "eval_strategy": "steps", )" +
                                 steps + "}"));
  };
  for (const char* taken : {R"("eval_steps": 5, "save_steps": 10)",
                            R"("eval_steps": 0.1, "save_steps": 0.3)", R"("save_steps": 500)"}) {
    EXPECT_THAT(missing(taken), IsEmpty()) << taken;
  }
  for (const char* refused :
       {R"("eval_steps": 7, "save_steps": 10)", R"("eval_steps": 0.2, "save_steps": 0.3)",
        R"("eval_steps": 7, "save_steps": 0.3)"}) {
    EXPECT_THAT(missing(refused), ElementsAre("load_best_model_at_end")) << refused;
  }
}

// The warmup_ratio of transformers 4: ceil(steps * ratio), from 0 to 1.
TEST(TrainerStepsTest, ARatioOfOneWarmsUpOverAllSteps) {
  const Translation all = StepArguments(R"({"warmup_ratio": 1.0, "max_steps": 1000000})");
  const double share = all.flags["warmup_steps"];
  EXPECT_LT(share, 1.0) << "1 would be one step";
  EXPECT_EQ(std::ceil(share * 1e6), 1e6);
  EXPECT_EQ(std::ceil(share * 10), 10);
  EXPECT_EQ(Json::parse(all.flags["warmup_steps"].dump()).get<double>(), share);
  EXPECT_EQ(StepArguments(R"({"warmup_steps": 1, "max_steps": 10})")
                .ds_config["scheduler"]["params"]["warmup_num_steps"],
            1);
  EXPECT_THAT(Missing(StepArguments(R"({"warmup_ratio": 1.5, "max_steps": 10})")),
              ElementsAre("warmup_ratio"));
}

}  // namespace
}  // namespace ds::cli
