// What is tried of data, and what is left to the ranks.

#include "runtime/plan/data/try_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/places.h"
#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

using ::testing::HasSubstr;

class TryDataTest : public ::testing::Test {
 protected:
  config::TrainJob Job(const std::string& path) const {
    return {.data = {path}, .tokenizer = DS_SOURCE_DIR "/tests/numerics/goldens/sft", .seq_len = 4};
  }
  std::string Try(const config::TrainJob& job, const TryBounds& bounds = {}) const {
    return TryData(job, /*vocabulary=*/320, bounds).status().message();
  }
  static std::string Rows(int count) {
    std::string rows;
    for (int i = 0; i < count; ++i) rows += "{\"text\": \"w10 w11 w12 w13\"}\n";
    return rows;
  }
  ScratchFolder folder_;
};

TEST_F(TryDataTest, RowsWithinTheBoundAreRead) {
  const std::string path = folder_.Write("rows.jsonl", Rows(3) + "{\"text\": 7}\n");
  EXPECT_THAT(Try(Job(path)), HasSubstr("rows.jsonl:4: "));
  EXPECT_EQ(Try(Job(path), {.file_rows = 3}), "") << "the ranks find the fourth";
}

TEST_F(TryDataTest, EveryFileIsTriedUpToTheBoundOfAll) {
  folder_.Write("all/a.jsonl", Rows(2));
  const std::string bad = folder_.Write("all/b.jsonl", "{\"text\": 7}\n");
  const config::TrainJob job = Job(folder_.path() + "/all");
  EXPECT_THAT(Try(job), HasSubstr("b.jsonl:1: "));
  EXPECT_EQ(Try(job, {.all_bytes = 10}), "");
}

TEST_F(TryDataTest, SamplesAreCountedWhereAllOfTheDataIsRead) {
  config::TrainJob job = Job(folder_.Write("rows.jsonl", Rows(1)));
  EXPECT_EQ(TryData(job, /*vocabulary=*/320).value(), 1) << "four tokens and the end";
  EXPECT_EQ(TryData(job, /*vocabulary=*/320, {.file_rows = 0}).value(), std::nullopt);
  job.seq_len = 5;
  EXPECT_THAT(Try(job), HasSubstr("the data has 5 tokens, one sample of seq_len 5 needs 6"));
  job.packing = "none";
  EXPECT_EQ(Try(job), "") << "a document is a sample";
  job.eval_split = 0.5;
  EXPECT_THAT(Try(job), HasSubstr("the data has 1 samples, and none would be left"));
  EXPECT_EQ(Try(job, {.file_rows = 0}), "") << "nobody knows how many there are";
}

TEST_F(TryDataTest, OfABlendEachPathIsASource) {
  config::TrainJob job = Job(folder_.Write("a.jsonl", Rows(9)));
  job.data.push_back(folder_.Write("b.jsonl", "{\"text\": \"w1\"}\n"));
  EXPECT_EQ(Try(job), "");
  job.data_weights = {1.0, 1.0};
  EXPECT_THAT(Try(job), HasSubstr("the data has 2 tokens"));
}

TEST_F(TryDataTest, TokensWithinTheBoundAreHeldAgainstTheVocabulary) {
  std::vector<std::uint16_t> ids(100, 1);
  ids[50] = 320;
  config::TrainJob job = Job(folder_.WriteTokens("ids.bin", ids));
  EXPECT_THAT(Try(job), HasSubstr("ids.bin, token 50 (byte 100): token id 320 is outside"));
  EXPECT_EQ(Try(job, {.all_tokens = 50}), "");
  job.token_dtype = "uint32";
  EXPECT_THAT(Try(job), HasSubstr("ids.bin, token 0 (byte 0): token id 65537 is outside"));
}

TEST_F(TryDataTest, AnErrorOfAnEvaluationNamesIt) {
  config::TrainJob job = Job(folder_.Write("rows.jsonl", Rows(3)));
  job.eval_data = {folder_.Write("other.jsonl", "{}\n")};
  EXPECT_THAT(Try(job), HasSubstr("the data to evaluate on: "));
}

TEST_F(TryDataTest, RowsAsBytesAreTriedWithoutATokenizer) {
  config::TrainJob job = Job(folder_.Write("rows.jsonl", Rows(3) + "{\"words\": \"a\"}\n"));
  job.tokenizer.clear();
  EXPECT_THAT(Try(job), HasSubstr("rows.jsonl:4: there is no text under \"text\""));
  EXPECT_THAT(Try(job, {.file_bytes = 10}), HasSubstr("rows.jsonl:4: there is no text"))
      << "of a large file the first rows";
}

}  // namespace
}  // namespace ds::data
