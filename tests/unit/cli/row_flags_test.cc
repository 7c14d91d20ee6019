// The flags of rows: which go together, and how --max_length makes samples as TRL does.

#include "cli/train/row_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/flags/flag_parser.h"
#include "cli/train/train_flags.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

config::TrainJob JobOf(const std::vector<std::string>& arguments) {
  TrainFlags flags;
  FlagParser parser("train", "test");
  AddTrainFlags(parser.app(), &flags);
  const auto parsed = parser.Parse(arguments, FlagParser::RemainingWords::kRefused);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  config::TrainJob job;
  ApplyTrainFlags(flags, &job);
  return job;
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  return std::string(CheckRowFlags(JobOf(arguments)).message());
}

TEST(RowFlagsTest, EachNamesItsKey) {
  const config::TrainJob job =
      JobOf({"--prompt_field", "question", "--completion-field", "answer", "--tools_field", "t",
             "--role_field", "who", "--content_field", "says", "--prompt_style", "alpaca"});
  EXPECT_EQ(job.prompt_field, "question");
  EXPECT_EQ(job.completion_field, "answer");
  EXPECT_EQ(job.tools_field, "t");
  EXPECT_EQ(job.role_field, "who");
  EXPECT_EQ(job.content_field, "says");
  EXPECT_EQ(job.prompt_style, "alpaca");
  EXPECT_EQ(JobOf({"--text_field", "body"}).text_field, "body");
  EXPECT_EQ(JobOf({"--messages_field", "dialog"}).messages_field, "dialog");
}

TEST(RowFlagsTest, RowsHaveOneFormat) {
  EXPECT_EQ(ErrorOf({"--prompt_field", "a", "--completion_field", "b"}), "");
  EXPECT_THAT(ErrorOf({"--text_field", "a", "--messages_field", "b"}), HasSubstr("give one"));
  EXPECT_THAT(ErrorOf({"--text_field", "a", "--completion_field", "b"}), HasSubstr("give one"));
  RowFlags flags;
  flags.messages_field = "a";
  flags.prompt_field = "b";
  EXPECT_THAT(RowOptionsOf(flags).status().message(), HasSubstr("give one"));
  flags.prompt_field.reset();
  EXPECT_EQ(RowOptionsOf(flags)->messages_field, "a");
}

TEST(RowFlagsTest, AMaximalLengthMakesEachDocumentASample) {
  const config::TrainJob cut = JobOf({"--max_length", "512"});
  EXPECT_EQ(cut.seq_len, 512);
  EXPECT_EQ(cut.packing, "none");
  const config::TrainJob packed =
      JobOf({"--max_length", "512", "--packing", "whole", "--seq_len", "2048"});
  EXPECT_EQ(packed.seq_len, 2048);
  EXPECT_EQ(packed.packing, "whole");
  EXPECT_EQ(JobOf({"--max_length", "0"}).packing, "stream");
  EXPECT_EQ(ErrorOf({"--max_length", "512", "--seq_len", "100"}),
            "--seq_len 100 is less than the documents of --max_length 512: make them equal");
  EXPECT_EQ(ErrorOf({"--max_length", "512", "--seq_len", "100", "--packing", "stream"}), "");
  EXPECT_THAT(ErrorOf({"--truncation_mode", "keep_end"}),
              HasSubstr("--truncation_mode requires --max_length"));
}

}  // namespace
}  // namespace ds::cli
