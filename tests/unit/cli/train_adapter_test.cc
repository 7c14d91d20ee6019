// --lora_adapter: what a PEFT folder says, and which flags go with it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/plan/memory/trained_rules.h"
#include "tests/places.h"
#include "tests/unit/cli/train_folder.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

using TrainAdapterTest = TrainFolderTest;

TEST_F(TrainAdapterTest, AnAdaptersFolderAloneDescribesIt) {
  const std::filesystem::path goldens = DS_SOURCE_DIR "/tests/numerics/goldens/adapters";
  std::filesystem::copy(goldens / "regex", Path("adapter"));
  std::filesystem::copy(goldens / "dropout", Path("dropped"));
  const TrainFlags flags{.lora_adapter = Path("adapter")};
  const auto inputs = GatherTrainInputs(flags, share_, 2);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->job.lora_adapter, Path("adapter"));
  EXPECT_THAT(Error({.lora_rank = 8, .lora_adapter = Path("adapter")}),
              HasSubstr("sets rank, alpha and targets; leave out the other flags"));
  // A resumed run's adapters come of its folder, too, or have the rank that they began with.
  const auto ranked = OverrideTrainInputs(inputs->job, {.lora_rank = 8}, share_, 2);
  EXPECT_THAT(ranked.status().message(), HasSubstr("leave out the other flags"));
  EXPECT_TRUE(OverrideTrainInputs(inputs->job, {}, share_, 2).ok());
  const auto own = GatherTrainInputs({.lora_rank = 8}, share_, 2);
  ASSERT_TRUE(own.ok()) << own.status().message();
  EXPECT_FALSE(OverrideTrainInputs(own->job, flags, share_, 2).ok());
  EXPECT_THAT(Error({.lora_alpha = 2.0}), HasSubstr("need --lora_rank or --lora_adapter"));
}

TEST_F(TrainAdapterTest, DropoutIsTheFoldersUnlessItIsGiven) {
  const std::filesystem::path goldens = DS_SOURCE_DIR "/tests/numerics/goldens/adapters";
  std::filesystem::copy(goldens / "dropout", Path("dropped"));
  const auto dropout = [&](const TrainFlags& flags) {
    const auto inputs = GatherTrainInputs(flags, share_, 2);
    EXPECT_TRUE(inputs.ok()) << inputs.status().message();
    const auto lora = engine::FindLora(inputs->job);
    EXPECT_TRUE(lora.ok()) << lora.status().message();
    return (*lora)->dropout;
  };
  EXPECT_EQ(dropout({.lora_adapter = Path("dropped")}), 0.05);
  EXPECT_EQ(dropout({.lora_dropout = 0.0, .lora_adapter = Path("dropped")}), 0.0);
  EXPECT_EQ(dropout({.lora_dropout = 0.5, .lora_adapter = Path("dropped")}), 0.5);
  EXPECT_EQ(dropout({.lora_rank = 8}), 0.0);
  EXPECT_EQ(dropout({.lora_rank = 8, .lora_dropout = 0.1}), 0.1);
  EXPECT_THAT(Error({.lora_dropout = 0.1}), HasSubstr("need --lora_rank or --lora_adapter"));
}

}  // namespace
}  // namespace ds::cli
