// What --data may name besides files and folders: patterns, and Megatron-LM's files by what their
// names have in common.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/train/find_model.h"
#include "cli/train/train_inputs.h"
#include "tests/unit/cli/train_folder.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

class TrainDataPathsTest : public TrainFolderTest {
 protected:
  TrainDataPathsTest() {
    Write("parts/1.txt", "a");
    Write("parts/2.txt", "b");
    Write("corpus_text_document.bin", "12");
    Write("corpus_text_document.idx", "x");
  }
};

TEST_F(TrainDataPathsTest, MayBePatternsAndPrefixes) {
  const auto inputs = GatherTrainInputs(
      {.data = {Path("parts/*.txt"), Path("corpus_text_document")}, .data_weights = {1, 2}}, share_,
      2);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  // A pattern is one path of a blend; ranks list its files.
  EXPECT_THAT(inputs->job.data, ElementsAre(Path("parts/*.txt"), Path("corpus_text_document.bin")));
}

TEST_F(TrainDataPathsTest, APatternThatMatchesNothingIsNamed) {
  const auto inputs = GatherTrainInputs({.data = {Path("*.nope")}}, share_, 2);
  EXPECT_EQ(inputs.status().message(),
            "--data " + Path("*.nope") + ": no data file matches this pattern");
}

}  // namespace
}  // namespace ds::cli
