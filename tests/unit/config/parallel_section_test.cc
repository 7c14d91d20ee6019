// What the batch, elasticity and ZeRO's groups count when a config cuts a job beside data
// parallelism, and what goes with it.

#include "runtime/config/sections/parallel_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

CheckResult CheckOn(int ranks, const std::string& members) {
  return CheckConfig("{" + members + "}", "ds.json", ranks);
}

ParallelConfig DegreesOn4(const std::string& members, const TrainingFlags& flags) {
  JobFacts facts{.world_size = 4};
  facts.flags = flags;
  const CheckResult checked =
      CheckConfig("{\"train_batch_size\": 4, " + members + "}", "ds.json", facts);
  EXPECT_THAT(Messages(checked.errors), ::testing::IsEmpty());
  return checked.config.parallel;
}

TEST(ParallelSectionTest, TheBatchCountsRanksWithSamplesOfTheirOwn) {
  const CheckResult checked = CheckOn(16, R"("pipeline": {"stages": 2},
      "sequence_parallel_size": 2, "tensor_parallel": {"autotp_size": 2}, "train_batch_size": 24)");
  EXPECT_EQ(ValueOf(checked, "train_micro_batch_size_per_gpu"), 12);
  EXPECT_THAT(OriginOf(checked, "train_micro_batch_size_per_gpu"),
              HasSubstr("world size 16 / 8 ranks of a sample"));
  EXPECT_THAT(Messages(checked.errors), ::testing::IsEmpty());
}

TEST(ParallelSectionTest, GradientsOfSequenceRanksTravelInADtypeOfTheirOwn) {
  const auto dtype = [](const std::string& members) {
    return CheckOn(4, R"("train_batch_size": 4)" + members).config.communication_data_type;
  };
  const std::string dtypes = R"(, "communication_data_type": "fp16",
      "seq_parallel_communication_data_type": "bf16")";
  const std::string two = R"(, "sequence_parallel_size": 2)";
  EXPECT_EQ(dtype(dtypes + two), DataType::kBf16);
  EXPECT_EQ(dtype(dtypes), DataType::kFp16);
  // Without it they travel as all do.
  EXPECT_EQ(dtype(two), std::nullopt);
}

TEST(ParallelSectionTest, DegreesThatAreOffLeaveAllRanks) {
  const CheckResult checked =
      CheckOn(4, R"("train_batch_size": 8, "pipeline": {"stages": 1}, "sequence_parallel_size": 1,
                    "tensor_parallel": {"autotp_size": 0})");
  ASSERT_TRUE(checked.ok) << checked.errors.front().message;
  EXPECT_EQ(checked.config.parallel.ranks_of_a_sample(), 1);
  EXPECT_EQ(checked.config.batch.train_micro_batch_size_per_gpu, 2);
}

TEST(ParallelSectionTest, DegreesComeFromTheFileOrTheFlag) {
  const std::string none = R"("steps_per_print": 1)";
  const std::string tensor = R"("tensor_parallel": {"autotp_size": 2})";
  EXPECT_EQ(DegreesOn4(tensor, {}).tensor, 2);
  EXPECT_EQ(DegreesOn4(tensor, {.tp = 2}).tensor, 2);
  EXPECT_EQ(DegreesOn4(none, {.tp = 4}).tensor, 4);
  EXPECT_EQ(DegreesOn4(R"("pipeline": {"stages": 2})", {}).pipeline, 2);
  EXPECT_EQ(DegreesOn4(R"("pipeline": {"stages": "auto"})", {.pp = 4}).pipeline, 4);
  EXPECT_EQ(DegreesOn4(none, {.pp = 2}).pipeline, 2);
  const std::string expert = R"("expert_parallel": {"enabled": true, "autoep_size": 2})";
  EXPECT_EQ(DegreesOn4(expert, {}).expert, 2);
  EXPECT_EQ(DegreesOn4(expert, {.ep = 2}).expert, 2);
  EXPECT_EQ(DegreesOn4(none, {.ep = 4}).expert, 4);
  EXPECT_EQ(DegreesOn4(R"("expert_parallel": {"enabled": false, "autoep_size": 2})", {}).expert, 1);
}

TEST(ParallelSectionTest, TensorSumsOverlapWithProductsAsConfigured) {
  const auto overlaps = [](const char* value) {
    const CheckResult result =
        CheckOn(4, R"("train_batch_size": 4, "tensor_parallel": {"autotp_size": 2,
                      "tp_overlap_comm": )" +
                       std::string(value) + "}");
    EXPECT_THAT(Messages(result.errors), ::testing::IsEmpty());
    return result.config.parallel.tensor_sums_overlap;
  };
  EXPECT_TRUE(overlaps("true"));
  EXPECT_FALSE(overlaps("false"));
}

TEST(ParallelSectionTest, FillsKeysOfThePipeline) {
  const auto check = [](const std::string& keys) {
    return CheckOn(2, R"("train_batch_size": 4, "pipeline": {"stages": 2, )" + keys + "}");
  };
  const CheckResult read =
      check(R"("partition": "type:decoder", "activation_checkpoint_interval": 1)");
  ASSERT_THAT(Messages(read.errors), ::testing::IsEmpty());
  EXPECT_EQ(read.config.pipeline.partition, "type:decoder");
  EXPECT_EQ(read.config.pipeline.activation_checkpoint_interval, 1);
  for (const std::string method : {"profile", "memory"}) {
    EXPECT_EQ(check(R"("partition": ")" + method + "\"").config.pipeline.partition, method);
  }
  EXPECT_TRUE(read.config.pipeline.pipe_partitioned);
  EXPECT_TRUE(read.config.pipeline.grad_partitioned);
  const CheckResult whole = check(R"("pipe_partitioned": false)");
  EXPECT_FALSE(whole.config.pipeline.pipe_partitioned);
  EXPECT_TRUE(whole.config.pipeline.grad_partitioned);
  EXPECT_FALSE(check(R"("grad_partitioned": false)").config.pipeline.grad_partitioned);
  EXPECT_THAT(Messages(whole.warnings), Not(Contains(HasSubstr("has no effect"))));
}

TEST(ParallelSectionTest, DataRanksMayGoBeforeExpertRanks) {
  EXPECT_TRUE(CheckOn(4, R"("train_batch_size": 4, "expert_parallel": {"enabled": true,
                            "autoep_size": 2}, "use_data_before_expert_parallelism": true)")
                  .config.parallel.data_before_expert);
}

// DeepSpeed takes null for an expert whose two gated products are one tensor.
TEST(ParallelSectionTest, AnExpertsThirdProductMayBeNull) {
  const CheckResult given = CheckOn(2, R"("train_batch_size": 2, "expert_parallel":
      {"enabled": true, "autoep_size": 2, "expert_w3": null})");
  EXPECT_THAT(Messages(given.errors), ::testing::IsEmpty());
  EXPECT_TRUE(given.given.at("expert_parallel").at("expert_w3").is_null());
}

}  // namespace
}  // namespace ds::config
