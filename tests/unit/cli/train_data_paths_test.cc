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
            "--data_field rows has no effect: no file of the data is .json");
}

// The ranks found that out, and `dsrun check` said that all is good.
TEST_F(TrainDataPathsTest, FlagsOnDocumentsNeedTokenizedTexts) {
  Write("model/config.json", "{}");
  Write("model/tokenizer.json", "{}");
  Write("plain.bin", "1234");
  const auto error = [&](const std::string& path, const RowFlags& rows,
                         const std::optional<std::string>& packing = std::nullopt,
                         const std::string& tokenizer = "bytes") {
    return Error({.model = Path("model"),
                  .data = {Path(path)},
                  .tokenizer = tokenizer,
                  .rows = rows,
                  .packing = packing,
                  .seq_len = 24});
  };
  EXPECT_EQ(
      error("data.txt", {.max_length = 24}),
      "--data: --max_length needs tokenized texts, but without a tokenizer (--tokenizer DIR) " +
          Path("data.txt") + " is read as bytes: leave the flag out");
  EXPECT_THAT(error("data.txt", {.prompt_style = "alpaca"}), HasSubstr("--prompt_style needs"));
  EXPECT_THAT(error("plain.bin", {.messages_field = "dialog"}, {}, ""),
              HasSubstr("--messages_field needs tokenized texts, but " + Path("plain.bin") +
                        " has tokens already"));
  EXPECT_THAT(error("data.txt", {}, "whole"), HasSubstr("packing by documents (--packing) needs"));
  EXPECT_THAT(error("plain.bin", {}, "none", ""), HasSubstr("(--packing) needs tokenized texts"));
  EXPECT_EQ(error("corpus_text_document", {}, "whole", ""), "accepted") << "its index says it";
  EXPECT_EQ(error("data.txt", {.max_length = 24}, {}, ""), "accepted") << "the model's tokenizer";
  EXPECT_EQ(error("data.txt", {}), "accepted");
  EXPECT_THAT(Error({.model = Path("model"),
                     .data = {Path("data.txt")},
                     .rows = {.max_length = 8},
                     .eval_data = {Path("plain.bin")},
                     .seq_len = 24}),
              HasSubstr("--eval_data: --max_length needs"));
}

TEST_F(TrainDataPathsTest, TextsAndTokensAreNotOneRow) {
  Write("plain.bin", "1234");
  const std::vector<std::string> both = {Path("data.txt"), Path("plain.bin")};
  EXPECT_THAT(
      Error({.data = both}),
      HasSubstr("texts and .bin token files cannot be mixed: " + both[0] + " and " + both[1]));
  EXPECT_EQ(Error({.data = both, .data_weights = {1, 2}}), "accepted") << "each is one row";
}

TEST_F(TrainDataPathsTest, ANoticeNamesTheFilesReadFromAFolder) {
  for (const char* const name : {"train.jsonl", "test.jsonl", "README.md"}) {
    Write(std::string("set/") + name, "{}\n");
  }
  const auto inputs =
      GatherTrainInputs({.data = {Path("set")}, .eval_data = {Path("set")}}, share_, 2);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_THAT(
      inputs->notices,
      Contains(HasSubstr(
          "train.jsonl is read, the split train; the splits test (test.jsonl) are not read: name "
          "their files to read them; 2 files are skipped: test.jsonl, README.md")));
  EXPECT_THAT(inputs->notices, Contains(HasSubstr("test.jsonl is read, the split test")));
}

}  // namespace
}  // namespace ds::cli
