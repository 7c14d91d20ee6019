#include "runtime/config/sections/zenflow_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/config/file/check_config.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kHost[] = R"("stage": 2, "offload_optimizer": {"device": "cpu"}, )";

CheckResult CheckZenFlowSection(const std::string& zero, const std::string& beside = "") {
  return CheckWith(R"("zero_optimization": {)" + zero + "}" + beside);
}

std::optional<ZenFlowConfig> ReadZenFlow(const std::string& section) {
  const CheckResult result =
      CheckZenFlowSection(std::string(kHost) + R"("zenflow": {)" + section + "}");
  EXPECT_TRUE(result.ok) << section;
  return result.config.zero_optimization.zenflow;
}

TEST(ZenFlowSectionTest, IsOffUntilOneOfItsKeysIsWritten) {
  const CheckResult off = CheckZenFlowSection(R"("stage": 2)");
  EXPECT_FALSE(off.config.zero_optimization.zenflow.has_value());
  EXPECT_FALSE(off.resolved["zero_optimization"].contains("zenflow"));
  const auto on = ReadZenFlow(R"("topk_ratio": 0.1)");  // the default
  ASSERT_TRUE(on.has_value());
  EXPECT_EQ(on->topk_ratio, 0.1);
  EXPECT_TRUE(on->counts_epochs);
  EXPECT_EQ(on->select_interval, 1);
  EXPECT_FALSE(on->update_interval.has_value());
  EXPECT_EQ(on->auto_ratio, 0.99);
  EXPECT_FALSE(on->overlap_step);
}

TEST(ZenFlowSectionTest, ASectionOfDefaultsStaysOffWithoutAHostOptimizer) {
  const CheckResult result =
      CheckZenFlowSection(R"("stage": 2, "zenflow": {"topk_ratio": 0.1, "overlap_step": false})");
  EXPECT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_THAT(Messages(result.warnings),
              Contains(HasSubstr("zenflow stays off without zero_optimization.offload_optimizer")));
  EXPECT_FALSE(result.config.zero_optimization.zenflow.has_value());
}

TEST(ZenFlowSectionTest, EveryKeyIsRead) {
  const auto zenflow = ReadZenFlow(
      R"("topk_ratio": 0.05, "select_strategy": "step", "select_interval": 100,
         "update_interval": 4, "full_warm_up_rounds": 3, "overlap_step": true,
         "auto_ratio": 0.5, "steps_per_epoch": 7)");
  ASSERT_TRUE(zenflow.has_value());
  EXPECT_EQ(zenflow->topk_ratio, 0.05);
  EXPECT_FALSE(zenflow->counts_epochs);
  EXPECT_EQ(zenflow->select_interval, 100);
  EXPECT_EQ(zenflow->update_interval, 4);
  EXPECT_EQ(zenflow->full_warm_up_rounds, 3);
  EXPECT_TRUE(zenflow->overlap_step);
  EXPECT_EQ(zenflow->auto_ratio, 0.5);
  EXPECT_EQ(zenflow->steps_per_epoch, 7);
}

// DeepSpeed's default is not the runtime's: one that is written out is meant.
TEST(ZenFlowSectionTest, CoresAreReservedWhereTheKeyIsWrittenOut) {
  const auto plain =
      CheckZenFlowSection(std::string(kHost) + R"("zenflow": {"overlap_step": true})");
  EXPECT_FALSE(plain.config.zero_optimization.zenflow->compute_cores.has_value());
  EXPECT_FALSE(plain.resolved["zero_optimization"]["zenflow"].contains("pt_reserved_cores_perc"));
  const auto written = CheckZenFlowSection(
      std::string(kHost) + R"("zenflow": {"overlap_step": true, "pt_reserved_cores_perc": 0.5})");
  EXPECT_EQ(written.config.zero_optimization.zenflow->compute_cores, 0.5);
  EXPECT_EQ(written.resolved["zero_optimization"]["zenflow"]["pt_reserved_cores_perc"], 0.5);
  const auto useless =
      CheckZenFlowSection(std::string(kHost) + R"("zenflow": {"pt_reserved_cores_perc": 0.75})");
  EXPECT_THAT(Messages(useless.warnings),
              Contains(HasSubstr("pt_reserved_cores_perc has no effect while "
                                 "zero_optimization.zenflow.overlap_step is false")));
}

TEST(ZenFlowSectionTest, RefusesUnsupportedCombinations) {
  const std::string section = R"("zenflow": {"topk_ratio": 0.1})";
  const auto errors = [&](const std::string& zero, const std::string& beside = "") {
    return Messages(CheckZenFlowSection(zero + section, beside).errors);
  };
  EXPECT_THAT(errors(kHost), IsEmpty());
  EXPECT_THAT(errors(kHost, R"(, "optimizer": {"type": "Lion"})"),
              Contains(HasSubstr("optimizer.type must be Adam or AdamW: ZenFlow")));
  EXPECT_THAT(errors(R"("stage": 2, "offload_optimizer": {"device": "cpu",
                        "super_offload": true}, )"),
              Contains(HasSubstr("super_offload updates all parameters in the backward pass")));
  const std::string kept = R"("stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}, )";
  EXPECT_THAT(errors(kept), IsEmpty());
  EXPECT_THAT(Messages(CheckZenFlowSection(kept + R"("zenflow": {"overlap_step": true})").errors),
              Contains(HasSubstr("offload_optimizer.ratio must be 1 with zenflow.overlap_step")));
  EXPECT_THAT(errors(R"("stage": 3, "offload_optimizer": {"device": "cpu"},
                        "offload_param": {"device": "nvme", "nvme_path": "/tmp"}, )"),
              Contains(HasSubstr("offload_param.device \"nvme\" has no columns at hand")));
  EXPECT_THAT(Messages(CheckZenFlowSection(R"("stage": 2, "offload_optimizer": {"device": "nvme",
                        "nvme_path": "/tmp"}, "zenflow": {"topk_ratio": 0.2})")
                           .errors),
              Contains(HasSubstr("needs zero_optimization.offload_optimizer.device \"cpu\"")));
}

TEST(ZenFlowSectionTest, IsRefusedWithRanksThatHaveParts) {
  for (const char* cut :
       {R"("pipeline": {"stages": 2})", R"("tensor_parallel": {"autotp_size": 2})",
        R"("sequence_parallel_size": 2)",
        R"("expert_parallel": {"enabled": true, "autoep_size": 2})"}) {
    SCOPED_TRACE(cut);
    const CheckResult result =
        CheckWith(R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"},
                     "zenflow": {"topk_ratio": 0.2}}, )" +
                  std::string(cut));
    EXPECT_THAT(Messages(result.errors),
                Contains(HasSubstr("zenflow.topk_ratio is built for data-parallel ranks")));
  }
}

TEST(ZenFlowSectionTest, NamesKeysWithoutEffect) {
  const auto warnings = [](const std::string& section) {
    return Messages(
        CheckZenFlowSection(std::string(kHost) + R"("zenflow": {)" + section + "}").warnings);
  };
  EXPECT_THAT(warnings(R"("auto_ratio": 0.5, "steps_per_epoch": 7)"),
              Not(Contains(HasSubstr("has no effect"))));
  EXPECT_THAT(warnings(R"("auto_ratio": 0.5, "update_interval": 4)"),
              Contains(HasSubstr("zenflow.auto_ratio has no effect with an update_interval")));
  EXPECT_THAT(warnings(R"("select_strategy": "step", "select_interval": 9, "steps_per_epoch": 7)"),
              Contains(HasSubstr("zenflow.steps_per_epoch has no effect with select_strategy")));
}

}  // namespace
}  // namespace ds::config
