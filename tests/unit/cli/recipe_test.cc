#include "cli/train/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "cli/train/train_inputs.h"
#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecipeTest : public ::testing::Test {
 protected:
  RecipeTest() : share_(folder_.path() / "share") {
    Write("share/configs/models/tiny.json", "{}");
    Write("share/configs/recipes/lora.json",
          R"({// Comments are welcome.
              "about": "adapters", "stands_for": ["adapters", "weights"],
              "train": {"epochs": 3, "lora_rank": 8, "lora_rslora": true, "eval_split": 0.25,
                        "lora_targets": ["q_proj", "v_proj"]},
              "ds_config": {"train_micro_batch_size_per_gpu": 2,
                            "zero_optimization": {"stage": 2}}})");
    Write("model/config.json", "{}");
    Write("model/model.safetensors", "weights");
    Write("data.txt", "words");
  }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_.path() / name).parent_path());
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
  }
  // What a recipe file of this text is refused with.
  std::string Error(const std::string& text) const {
    Write("own.json", text);
    const auto recipe = FindRecipe(Path("own.json"), share_);
    return recipe.ok() ? "accepted" : recipe.status().message();
  }
  // The inputs of a job that takes the recipe.
  TrainInputs Inputs(const Recipe& recipe, const std::string& model,
                     std::int64_t lora_rank = 8) const {
    TrainFlags flags{.model = model, .data = {Path("data.txt")}, .lora_rank = lora_rank};
    flags.base = config::BaseConfig{.name = "recipe " + recipe.name, .keys = recipe.ds_config};
    auto inputs = GatherTrainInputs(flags, share_, 2);
    EXPECT_TRUE(inputs.ok()) << inputs.status().message();
    return *std::move(inputs);
  }

  ds::testing::TemporaryFolder folder_;
  ShareFolder share_;
};

TEST_F(RecipeTest, ItsFlagsAreWordsOfACommandLine) {
  const auto recipe = FindRecipe("lora", share_);
  ASSERT_TRUE(recipe.ok()) << recipe.status().message();
  EXPECT_THAT(WordsBelow(*recipe, {}),
              ElementsAre("--epochs", "3", "--lora_rank", "8", "--lora_rslora", "--eval_split",
                          "0.25", "--lora_targets", "q_proj", "v_proj"));
}

TEST_F(RecipeTest, UserFlagsOverrideIt) {
  const auto recipe = FindRecipe("lora", share_);
  ASSERT_TRUE(recipe.ok());
  EXPECT_THAT(WordsBelow(*recipe, {"steps", "lora_targets", "lora_rslora"}),
              ElementsAre("--lora_rank", "8", "--eval_split", "0.25"));
  EXPECT_THAT(WordsBelow(*recipe, {"lora_adapter", "eval_data", "epochs"}), IsEmpty());
}

TEST_F(RecipeTest, ItsConfigHoldsWhereNoneIsGiven) {
  const auto recipe = FindRecipe("lora", share_);
  ASSERT_TRUE(recipe.ok());
  const TrainInputs inputs = Inputs(*recipe, Path("model"));
  EXPECT_EQ(inputs.job.ds_config,
            R"({"train_micro_batch_size_per_gpu":2,"zero_optimization":{"stage":2}})");
  EXPECT_EQ(inputs.resolved_config["origins"]["zero_optimization.stage"], "recipe lora");
  EXPECT_THAT(inputs.notices, ::testing::Not(::testing::Contains(HasSubstr("built-in"))));
}

TEST_F(RecipeTest, RefusesAJobWithoutTheFeaturesOfItsRecipe) {
  const auto recipe = FindRecipe("lora", share_);
  ASSERT_TRUE(recipe.ok());
  EXPECT_TRUE(CheckRecipeApplies(*recipe, Inputs(*recipe, Path("model"))).ok());
  EXPECT_EQ(CheckRecipeApplies(*recipe, Inputs(*recipe, Path("model"), 0)).message(),
            "recipe lora trains adapters, but --lora_rank 0 asks for none; change that, or train "
            "without --recipe");
  EXPECT_THAT(CheckRecipeApplies(*recipe, Inputs(*recipe, "tiny")).message(),
              HasSubstr("recipe lora starts from trained weights, but --model tiny has none"));
}

TEST_F(RecipeTest, AnUnknownNameGetsASuggestion) {
  const auto recipe = FindRecipe("lroa", share_);
  EXPECT_EQ(recipe.status().message(),
            "--recipe lroa: no such recipe (lora); did you mean 'lora'?");
  EXPECT_FALSE(FindRecipe("../recipes/lora", share_).ok()) << "a path ends in .json";
}

TEST_F(RecipeTest, NamesErrorsInAFile) {
  EXPECT_THAT(Error("{"), HasSubstr("own.json: 1:2: "));
  EXPECT_THAT(Error("[1]"), HasSubstr("a recipe is an object"));
  EXPECT_THAT(Error(R"({"trian": {}})"), HasSubstr("unknown key trian; did you mean 'train'?"));
  EXPECT_THAT(Error(R"({"train": {}})"), HasSubstr("ds_config must be there, as an object"));
  EXPECT_THAT(Error(R"({"train": {"seq_len": {}}, "ds_config": {}})"),
              HasSubstr("train.seq_len must be a text, a number, true or a list of them"));
  EXPECT_THAT(Error(R"({"train": {}, "ds_config": {}, "stands_for": ["wieghts"]})"),
              HasSubstr("no feature is called wieghts; did you mean 'weights'?"));
  EXPECT_EQ(Error(R"({"train": {}, "ds_config": {}})"), "accepted");
}

TEST_F(RecipeTest, EachShippedRecipeIsListedAndHasAPage) {
  const ShareFolder shipped{fs::path(DS_SOURCE_DIR)};
  const auto list = ListRecipes(shipped);
  ASSERT_TRUE(list.ok()) << list.status().message();
  ASSERT_THAT(shipped.Recipes(), ::testing::Contains("lora"));
  const auto choosing = ReadFile(DS_SOURCE_DIR "/configs/recipes/README.md");
  ASSERT_TRUE(choosing.ok());
  std::istringstream lines(*list);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  for (const std::string& name : shipped.Recipes()) {
    EXPECT_THAT(*list, HasSubstr(name + " "));
    EXPECT_TRUE(fs::exists(fs::path(DS_SOURCE_DIR) / "configs/recipes" / (name + ".md"))) << name;
    EXPECT_THAT(*choosing, HasSubstr("[" + name + "](" + name + ".md)"));
    const auto recipe = FindRecipe(name, shipped);
    ASSERT_TRUE(recipe.ok()) << recipe.status().message();
    EXPECT_THAT(recipe->stands_for, ::testing::Not(IsEmpty())) << name;
    EXPECT_LE(name.size() + recipe->about.size(), 120u);
  }
}

// `resume RUN --bf16=false`, and the other switches, kept what the run had.
TEST_F(RecipeTest, SwitchesThatAreFalseGoBeforeThoseOfARunToo) {
  Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}})");
  const auto inputs = GatherTrainInputs({.model = Path("model"),
                                         .data = {Path("data.txt")},
                                         .deepspeed_config = Path("ds.json"),
                                         .eval_split = 0.5,
                                         .eval_every = 2,
                                         .save_best = true,
                                         .no_shuffle = true,
                                         .recompute = "full",
                                         .no_decay_on_norms_and_biases = true,
                                         .lora_rank = 4,
                                         .lora_dora = true,
                                         .lora_merge = true,
                                         .encrypt = true},
                                        share_, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_TRUE(OverrideTrainInputs(inputs->job, {}, share_, 1)->config.bf16.enabled);
  TrainFlags off{.save_best = false,
                 .recompute = "none",
                 .no_decay_on_norms_and_biases = false,
                 .lora_dora = false,
                 .lora_merge = false,
                 .encrypt = false};
  off.training.bf16 = false;
  const auto resumed = OverrideTrainInputs(inputs->job, off, share_, 1);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_FALSE(resumed->config.bf16.enabled);
  EXPECT_FALSE(resumed->job.save_best);
  EXPECT_EQ(resumed->job.recompute, "none");
  EXPECT_FALSE(resumed->job.no_decay_on_norms_and_biases);
  EXPECT_FALSE(resumed->job.lora_dora);
  EXPECT_FALSE(resumed->job.lora_merge);
  EXPECT_FALSE(resumed->job.encrypt);
}

}  // namespace
}  // namespace ds::cli
