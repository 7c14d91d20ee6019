#include "runtime/config/sections/elasticity_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/config/file/check_config.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A section of version 0.1 whose batch is 24 for 1, 2, 3, 4, 6 or 12 ranks.
std::string Section(const std::string& more = "") {
  return R"("elasticity": {"enabled": true, "max_train_batch_size": 24,
      "micro_batch_sizes": [2, 4, 6], "version": 0.1)" +
         more + "}";
}

CheckResult CheckElasticity(const std::string& members, int world_size = 2) {
  return CheckConfig("{" + members + "}", "ds.json", world_size);
}

TEST(ElasticityDecidesTheBatchTest, DerivesAllThreeSizes) {
  const CheckResult result = CheckElasticity(Section());
  ASSERT_TRUE(result.ok) << result.errors[0].message;
  EXPECT_EQ(result.config.batch.train_batch_size, 24);
  EXPECT_EQ(result.config.batch.train_micro_batch_size_per_gpu, 6);
  EXPECT_EQ(result.config.batch.gradient_accumulation_steps, 2);
  EXPECT_EQ(OriginOf(result, "train_batch_size"), "derived from elasticity, world size 2");
}

TEST(ElasticityDecidesTheBatchTest, KeepsTheBatchOnAnotherNumberOfRanks) {
  const std::string travelled = ToDsConfigJson(CheckElasticity(Section()));
  for (const int world_size : {1, 2, 3, 4, 6, 12}) {
    const CheckResult result = CheckConfig(travelled, "job", world_size);
    ASSERT_TRUE(result.ok) << world_size;
    EXPECT_EQ(result.config.batch.train_batch_size, 24);
  }
  EXPECT_THAT(Messages(CheckConfig(travelled, "job", 5).errors),
              ElementsAre(HasSubstr("5 is not one of the 6 valid numbers of GPUs")));
}

TEST(ElasticityDecidesTheBatchTest, RefusesBatchSizesNextToIt) {
  const std::string batch = R"("train_batch_size": 8, "gradient_accumulation_steps": 1, )";
  EXPECT_THAT(Messages(CheckElasticity(batch + Section()).errors),
              ElementsAre(HasSubstr("train_batch_size contradicts elasticity"),
                          HasSubstr("gradient_accumulation_steps contradicts elasticity")));
  const CheckResult ignored =
      CheckElasticity(batch + Section(R"(, "ignore_non_elastic_batch_info": true)"));
  ASSERT_TRUE(ignored.ok);
  EXPECT_EQ(ignored.config.batch.train_batch_size, 24);
  EXPECT_EQ(ignored.config.batch.gradient_accumulation_steps, 2);
  EXPECT_THAT(Messages(ignored.warnings),
              ::testing::Contains(HasSubstr("train_batch_size is overridden: elasticity")));
}

TEST(ElasticityDecidesTheBatchTest, OneMistakeIsReportedOnce) {
  EXPECT_THAT(Messages(CheckElasticity(Section(R"(, "min_gpus": 0)")).errors),
              ElementsAre(HasSubstr("elasticity.min_gpus must be at least 1")));
  EXPECT_THAT(Messages(CheckElasticity(Section(R"(, "max_gpus": 3, "min_gpus": 4)")).errors),
              ElementsAre(HasSubstr("elasticity.max_gpus 3 is less than min_gpus 4")));
  EXPECT_THAT(Messages(CheckElasticity(R"("elasticity": {"enabled": 1})").errors),
              ElementsAre(HasSubstr("elasticity.enabled must be true or false")));
}

TEST(ElasticityDecidesTheBatchTest, NeedsItsTwoKeys) {
  EXPECT_THAT(Messages(CheckElasticity(R"("elasticity": {"enabled": true})").errors),
              ElementsAre(HasSubstr("elasticity.max_train_batch_size is missing"),
                          HasSubstr("elasticity.micro_batch_sizes is missing")));
}

TEST(ElasticityDecidesTheBatchTest, HasNoEffectWhileItIsOff) {
  const CheckResult result =
      CheckElasticity(R"("train_batch_size": 8, "elasticity": {"max_train_batch_size": 24})");
  ASSERT_TRUE(result.ok);
  EXPECT_EQ(result.config.batch.train_batch_size, 8);
  EXPECT_THAT(Messages(result.warnings),
              ::testing::Contains(HasSubstr("elasticity.max_train_batch_size has no effect while "
                                            "elasticity.enabled is false")));
}

TEST(ElasticityDecidesTheBatchTest, TrainingHasNoModelParallelismYet) {
  EXPECT_THAT(
      Messages(CheckElasticity(R"("elasticity": {"enabled": true, "max_train_batch_size": 24,
                                "micro_batch_sizes": [2], "num_gpus_per_node": 2,
                                "model_parallel_size": 2})")
                   .errors),
      ElementsAre(HasSubstr(
          "elasticity.model_parallel_size is 2, and this config has 1 rank work on a sample")));
}

TEST(AgreesWithSchedulerTest, ComparesCapSizesAndVersion) {
  const CheckResult result = CheckElasticity(Section());
  const auto message = [&](const std::string& seen) {
    return AgreesWithScheduler(result.given, seen).message();
  };
  const std::string cap = R"("max_train_batch_size": 24)";
  const std::string sizes = R"("micro_batch_sizes": [2, 4, 6])";
  EXPECT_EQ(message("{" + cap + ", " + sizes + R"(, "version": 0.1, "min_gpus": 7})"), "");
  EXPECT_EQ(message("{" + sizes + R"(, "version": 0.1})"),
            "elasticity.max_train_batch_size is 24, but the scheduler has seen 2000 "
            "(DEEPSPEED_ELASTICITY_CONFIG)");
  EXPECT_THAT(message("{" + cap + R"(, "micro_batch_sizes": [4, 2, 6], "version": 0.1})"),
              HasSubstr("micro_batch_sizes is [2,4,6], but the scheduler has seen [4,2,6]"));
  EXPECT_THAT(message("{" + cap + ", " + sizes + "}"),
              HasSubstr("elasticity.version is 0.1, but the scheduler has seen 0.2"));
  EXPECT_EQ(message("24"), "DEEPSPEED_ELASTICITY_CONFIG is not a JSON object");
  EXPECT_TRUE(AgreesWithScheduler(CheckElasticity(R"("train_batch_size": 8)").given, "24").ok());
}

std::string Error(const std::string& text) {
  const auto batch = ElasticBatchOf(text, "ds.json", {});
  return batch.ok() ? "" : batch.status().message();
}

TEST(ElasticBatchOfTest, ReadsTheSectionAndNothingElse) {
  const std::string text = R"({"what_is_this": 1, "fp16": {"enabled": true}, )" + Section() + "}";
  const auto batch = ElasticBatchOf(text, "ds.json", {.num_gpus = 4});
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  EXPECT_EQ(batch->final_batch_size, 24);
  EXPECT_THAT(batch->valid_gpus, ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_EQ(batch->micro_batch_size, 6);
}

TEST(ElasticBatchOfTest, OnlyVersion02TakesTheNumberOfTheEnvironment) {
  const ElasticQuestion question{.num_gpus_of_environment = 5};
  const auto by_gpus = ElasticBatchOf("{" + Section() + "}", "ds.json", question);
  ASSERT_TRUE(by_gpus.ok());
  EXPECT_EQ(by_gpus->micro_batch_size, std::nullopt);
  const std::string by_node =
      R"({"elasticity": {"enabled": true, "max_train_batch_size": 24, "micro_batch_sizes": [2]}})";
  const auto batch = ElasticBatchOf(by_node, "ds.json", question);
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  EXPECT_THAT(batch->valid_gpus, ElementsAre(5));
  EXPECT_EQ(batch->final_batch_size, 20);
  EXPECT_EQ(
      Error(by_node),
      "ds.json: elasticity.version 0.2 (the default) needs the number of GPUs: give it with -w N");
}

TEST(ElasticBatchOfTest, NamesPlaceAndKey) {
  EXPECT_EQ(Error("{}"), "ds.json: there is no elasticity section");
  EXPECT_EQ(Error("[]"), "ds.json:1:1: the config must be an object: { ... }");
  EXPECT_THAT(Error("{"), HasSubstr("ds.json:1:2: "));
  EXPECT_THAT(Error(R"({"elasticity": {}})"), HasSubstr("ds.json:1:2: elasticity is off"));
  EXPECT_THAT(Error(R"({"elasticity": {"enabled": true, "prefer_large_batch": true}})"),
              HasSubstr("did you mean 'prefer_larger_batch'?"));
  EXPECT_THAT(Error("{" + Section(R"(, "max_gpus": 0, "min_time": -1)") + "}"),
              AllOf(HasSubstr("elasticity.max_gpus must be"), HasSubstr("elasticity.min_time")));
}

TEST(ElasticBatchOfTest, ChecksListAndVersionByHand) {
  const auto with = [](const std::string& list, const std::string& version) {
    return Error(R"({"elasticity": {"enabled": true, "max_train_batch_size": 24,
        "micro_batch_sizes": )" +
                 list + R"(, "version": )" + version + "}}");
  };
  EXPECT_THAT(with("[2]", "0.1"), IsEmpty());
  for (const char* list : {"[true]", "[2.5]", "[\"2\"]", "[null]", "[18446744073709551615]"}) {
    EXPECT_THAT(with(list, "0.1"), HasSubstr("must be a list of whole numbers")) << list;
  }
  EXPECT_THAT(with("2", "0.1"), HasSubstr("must be a list, not 2"));
  EXPECT_THAT(with("[0]", "0.1"), HasSubstr("must be 1 or more, not 0"));
  EXPECT_THAT(with("[2]", "0.3"), HasSubstr("elasticity.version must be 0.1 or 0.2, not 0.3"));
  EXPECT_THAT(with("[2]", "1"), HasSubstr("elasticity.version must be 0.1 or 0.2, not 1.0"));
}

}  // namespace
}  // namespace ds::config
