// What --data may name besides files and folders: patterns, and Megatron-LM's files by what their
// names have in common.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/train/find_model.h"
#include "cli/train/train_inputs.h"
#include "tests/unit/cli/train_folder.h"

namespace ds::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST_F(TrainDataPathsTest, FilesThatCannotBeReadAreRefusedBeforeRanksStart) {
  const auto error = [&](TrainFlags flags) {
    return std::string(GatherTrainInputs(flags, share_, 2).status().message());
  };
  Write("pointer.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_THAT(error({.data = {Path("pointer.jsonl")}}), HasSubstr("this is a Git LFS pointer"));
  EXPECT_THAT(error({.data = {Path("parts")}, .eval_data = {Path("pointer.jsonl")}}),
              HasSubstr("--eval_data " + Path("pointer.jsonl") + ": this is a Git LFS pointer"));
  Write("mixed/a.csv", "text\na\n");
  Write("mixed/b.jsonl", "{}\n");
  EXPECT_THAT(error({.data = {Path("mixed")}}), HasSubstr("files of several formats"));
  EXPECT_EQ(error({.data = {Path("mixed/b.jsonl")}, .data_field = "rows"}),
            "--data_field rows: of what? No file of the data is .json");
}

TEST_F(TrainDataPathsTest, ANoticeSaysWhichFilesOfAFolderAreRead) {
  for (const char* const name : {"train.jsonl", "test.jsonl", "README.md"}) {
    Write(std::string("set/") + name, "{}\n");
  }
  const auto inputs =
      GatherTrainInputs({.data = {Path("set")}, .eval_data = {Path("set")}}, share_, 2);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_THAT(inputs->notices,
              Contains(HasSubstr("train.jsonl is read, the split train; not read are the splits "
                                 "test (test.jsonl), whose files can be named; 2 files are passed "
                                 "over: test.jsonl, README.md")));
  EXPECT_THAT(inputs->notices, Contains(HasSubstr("test.jsonl is read, the split test")));
}

}  // namespace
}  // namespace ds::cli
