#include "runtime/plan/estimate/predict_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/places.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PredictMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = plan::ReadJobModel(DS_SOURCE_DIR "/configs/models/gpt2-30m.json");
    ASSERT_TRUE(model.ok()) << model.status().message();
    job_ = {.model = *model, .seq_len = 256, .setting = {.ranks = 2}};
    config_.batch.train_micro_batch_size_per_gpu = 8;
    config_.zero_optimization.stage = 1;
  }
  std::int64_t bytes() const { return plan::PredictMemory(config_, job_).bytes(); }

  config::DsConfig config_;
  engine::JobShape job_;
};

TEST_F(PredictMemoryTest, ChangesMakeItLessTheBestFirst) {
  const std::vector<plan::Change> changes = plan::ListChanges(config_, job_);
  ASSERT_GE(changes.size(), 4U);
  EXPECT_EQ(changes.front().what, "stage 3, --recompute full, a micro-batch of 1");
  EXPECT_TRUE(std::is_sorted(changes.begin(), changes.end(),
                             [](const auto& a, const auto& b) { return a.bytes < b.bytes; }));
  for (const plan::Change& change : changes) EXPECT_LT(change.bytes, bytes()) << change.what;
  config_.zero_optimization.stage = 3;
  config_.batch.train_micro_batch_size_per_gpu = 1;
  job_.recompute = {.kind = config::RecomputeChoice::Kind::kBlocks};
  EXPECT_TRUE(plan::ListChanges(config_, job_).empty()) << "nothing is left to be changed";
}

TEST_F(PredictMemoryTest, AdviceNamesOnlySettingsThatFit) {
  const std::int64_t capacity = bytes() - (100 << 20);
  const std::string advice = plan::AdviseOnMemory(config_, job_, capacity);
  EXPECT_THAT(advice, StartsWith("settings that fit, each by itself:\n  a micro-batch of "));
  EXPECT_THAT(advice, HasSubstr("\n  --recompute full ("));
  EXPECT_THAT(plan::AdviseOnMemory(config_, job_, 1 << 20), HasSubstr("use more hosts"));
}

TEST_F(PredictMemoryTest, PartsAreThoseThatThereAre) {
  const std::string parts = plan::ListHostParts(plan::PredictMemory(config_, job_));
  EXPECT_THAT(parts, HasSubstr(" of parameters, "));
  EXPECT_THAT(parts, HasSubstr(" of the program, in the "));
  EXPECT_THAT(parts, Not(HasSubstr("master weights")));
  EXPECT_THAT(parts, Not(HasSubstr("files")));
}

TEST_F(PredictMemoryTest, OnAGpuTheProgramIsTheHosts) {
  const plan::MemoryPrediction on_cpu = plan::PredictMemory(config_, job_);
  EXPECT_EQ(on_cpu.device_bytes(), 0);
  EXPECT_EQ(on_cpu.bytes(), on_cpu.step.peak.total() + on_cpu.process_bytes);
  job_.setting.on_gpu = true;
  const plan::MemoryPrediction on_gpu = plan::PredictMemory(config_, job_);
  EXPECT_EQ(on_gpu.bytes(), on_gpu.step.peak.total());
  EXPECT_EQ(on_gpu.host_bytes(), on_gpu.process_bytes);
}

TEST_F(PredictMemoryTest, TheTableMarksSettingsThatFit) {
  plan::Prediction question{.config = config_, .job = job_, .hosts = 1, .ranks_of_host = 2};
  EXPECT_THAT(ToText(plan::MakePrediction(question)), HasSubstr("give --memory BYTES"));
  question.capacity = std::int64_t{64} << 30;
  const plan::Prediction wide = plan::MakePrediction(question);
  EXPECT_THAT(ToText(wide), HasSubstr("\nfits in 64.0 GiB; the largest micro-batch that does: "));
  EXPECT_THAT(ToText(wide), HasSubstr("2 ranks on 1 host, 8 x 256 tokens a micro-batch, fp32, "
                                      "ZeRO stage 1\n"));
  plan::Prediction by_tokens = question;
  by_tokens.job.efficiency.dynamic_batching = {{.max_tokens = 1000}};
  EXPECT_THAT(ToText(plan::MakePrediction(by_tokens)),
              AllOf(HasSubstr("8 x up to 1000 tokens before padding a micro-batch"),
                    HasSubstr("\ndynamic batching: planned for samples of 256 tokens; the")));
  EXPECT_THAT(ToText(wide), Not(HasSubstr("dynamic batching")));
  question.capacity = 1 << 20;
  const plan::Prediction tight = plan::MakePrediction(question);
  EXPECT_THAT(ToText(tight), HasSubstr("\ndoes NOT fit in 1.00 MiB, with any micro-batch\n"));
  EXPECT_EQ(ToJson(tight)["fits"], false);
  EXPECT_EQ(ToJson(tight)["rank_host"], tight.rank.host_bytes());
}

TEST_F(PredictMemoryTest, ShowsExpertMemoryWithTheMaximumLoad) {
  job_.model = plan::ReadJobModel(DS_SOURCE_DIR "/configs/models/mixtral-tiny.json").value();
  plan::Prediction question{.config = config_, .job = job_, .hosts = 1, .ranks_of_host = 2};
  EXPECT_THAT(ToText(plan::MakePrediction(question)), Not(HasSubstr("experts")));
  question.config.parallel.expert = 2;
  const plan::Prediction even = plan::MakePrediction(question);
  ASSERT_TRUE(even.worst_load.has_value());
  EXPECT_GT(even.worst_load->bytes(), even.rank.bytes());
  EXPECT_THAT(ToText(even), HasSubstr("\nexperts: planned for 1 x an even load of a rank's; with 2 "
                                      "x, the maximum, "));
  EXPECT_EQ(ToJson(even)["rank_at_most_expert_load"], even.worst_load->bytes());
  question.job.expert_load = 100.0;
  const plan::Prediction worst = plan::MakePrediction(question);
  EXPECT_EQ(worst.rank.bytes(), even.worst_load->bytes());
  EXPECT_THAT(
      ToText(worst),
      HasSubstr("\nexperts: planned for 2 x an even load of a rank's; this is the maximum\n"));
}

TEST(ReadJobModelTest, RefusesFoldersWithoutAModel) {
  EXPECT_FALSE(plan::ReadJobModel(DS_SOURCE_DIR "/configs/models/none.json").ok());
  // It has comments, so it is not even the JSON of a model's folder.
  const auto refused = plan::ReadJobModel(DS_SOURCE_DIR "/configs/default_ds_config.json");
  EXPECT_THAT(refused.status().message(),
              HasSubstr("not valid JSON: line 1, column 1: // is not JSON"));
}

}  // namespace
}  // namespace ds::cli
