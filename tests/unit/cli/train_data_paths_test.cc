// What --data may name besides files and folders: patterns, and Megatron-LM's files by what their
// names have in common.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/train/find_model.h"
#include "cli/train/train_inputs.h"
#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class TrainDataPathsTest : public ::testing::Test {
 protected:
  TrainDataPathsTest() : share_(folder_.path() / "share") {
    Write("share/configs/default_ds_config.json", R"({"train_micro_batch_size_per_gpu": 2})");
    Write("share/configs/models/gpt2-demo.json", "{}");
    Write("parts/1.txt", "a");
    Write("parts/2.txt", "b");
    Write("corpus_text_document.bin", "12");
    Write("corpus_text_document.idx", "x");
  }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_.path() / name).parent_path());
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
  }

  ds::testing::TemporaryFolder folder_;
  ShareFolder share_;
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
            "--data " + Path("*.nope") + ": nothing matches this pattern");
}

}  // namespace
}  // namespace ds::cli
