// The proposals for a model and hosts fit, in the order of the page that recipes are chosen by.

#include "runtime/plan/estimate/fit_degrees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/plan/estimate/predict_memory.h"
#include "tests/places.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

class FitDegreesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = plan::ReadJobModel(DS_SOURCE_DIR "/configs/models/gpt2-30m.json");
    ASSERT_TRUE(model.ok()) << model.status().message();
    question_.job.model = *model;
    question_.job.seq_len = 256;
    question_.job.setting = {.ranks = 8};
    question_.ranks_of_a_host = 4;
  }
  std::vector<plan::Fit> With(double gigabytes) {
    question_.capacity = static_cast<std::int64_t>(gigabytes * (std::int64_t{1} << 30));
    return plan::FitDegrees(question_);
  }

  plan::FitQuestion question_;
};

TEST_F(FitDegreesTest, ShardsNothingWithEnoughMemory) {
  const plan::Fit first = With(64).front();
  EXPECT_EQ(first.zero, 0);
  EXPECT_EQ(first.Flags(), "");
  EXPECT_GT(first.micro_batch, 1);
}

TEST_F(FitDegreesTest, ShardsMoreWithLessMemory) {
  const std::int64_t whole = With(64).front().bytes;
  question_.capacity = whole - 1;
  const auto fits = plan::FitDegrees(question_);
  ASSERT_FALSE(fits.empty());
  EXPECT_GT(fits.front().zero, 0);
  EXPECT_EQ(fits.front().Flags(), "");
  for (const plan::Fit& fit : fits) {
    EXPECT_LE(fit.bytes, question_.capacity) << fit.Flags();
    EXPECT_GE(fit.micro_batch, 1) << fit.Flags();
    EXPECT_EQ(4 % (fit.tensor * fit.sequence), 0) << fit.Flags();
    EXPECT_EQ(8 % (fit.tensor * fit.sequence * fit.pipeline), 0) << fit.Flags();
  }
}

// The config refuses them together.
TEST_F(FitDegreesTest, SamplesThatDifferInLengthHaveNoSequenceRanks) {
  const auto has_sequence_ranks = [&] {
    const auto fits = With(2);
    EXPECT_FALSE(fits.empty());
    return std::any_of(fits.begin(), fits.end(),
                       [](const plan::Fit& fit) { return fit.sequence > 1; });
  };
  EXPECT_TRUE(has_sequence_ranks());
  question_.job.efficiency.dynamic_batching = {{.max_tokens = 256}};
  EXPECT_FALSE(has_sequence_ranks());
}

TEST_F(FitDegreesTest, LongSamplesNeedSequenceRanks) {
  question_.job.seq_len = 32768;
  const std::int64_t alone = With(1e6).front().bytes;
  question_.capacity = alone / 8;
  const auto fits = plan::FitDegrees(question_);
  ASSERT_FALSE(fits.empty());
  bool truncates_samples = false;
  for (const plan::Fit& fit : fits) truncates_samples = truncates_samples || fit.sequence > 1;
  EXPECT_TRUE(truncates_samples);
}

TEST_F(FitDegreesTest, HeadsThatCannotBeSharedGoInARing) {
  question_.job.model.heads = question_.job.model.kv_heads = 1;
  question_.job.model.head_width = question_.job.model.width;
  const auto fits = With(64);
  ASSERT_GE(fits.size(), 2u);
  EXPECT_EQ(fits[1].Flags(), "--sp 2 --sp_kind ring");
  EXPECT_EQ(ToJson(fits)[1]["sp_kind"], "ring");
}

TEST_F(FitDegreesTest, ExpertsAreSharedAmongRanksThatDivideThem) {
  const auto uses_expert_ranks = [this](int count) {
    const auto fits = With(64);
    return std::any_of(fits.begin(), fits.end(), [count](const plan::Fit& fit) {
      return fit.expert == count && fit.Flags() == "--ep " + std::to_string(count);
    });
  };
  const char* const of_load = "of --ep: for experts that get up to 1 x their even share";
  EXPECT_FALSE(uses_expert_ranks(2)) << "a dense model has none";
  EXPECT_THAT(ToText(With(64), question_), ::testing::Not(HasSubstr(of_load)));
  question_.job.model.experts = 6;
  question_.job.model.experts_per_token = 2;
  EXPECT_TRUE(uses_expert_ranks(2));
  EXPECT_THAT(ToText(With(64), question_), HasSubstr(of_load));
}

TEST_F(FitDegreesTest, ReportsThatNothingFits) {
  const auto fits = With(0.05);
  EXPECT_TRUE(fits.empty());
  EXPECT_THAT(ToText(fits, question_), HasSubstr("nothing fits 51.2 MiB a rank, of 8 ranks, 4 on"));
  EXPECT_THAT(ToText(With(64), question_), HasSubstr("zero_optimization.stage 0: "));
}

}  // namespace
}  // namespace ds::cli
