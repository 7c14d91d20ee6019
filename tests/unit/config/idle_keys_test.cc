#include "runtime/config/idle_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config/file/check_config.h"

namespace ds::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> ListOf(const std::string& sections, RankPlacement placement) {
  const CheckResult result =
      CheckConfig(R"({"train_batch_size": 2, )" + sections + "}", "ds.json", 2);
  EXPECT_TRUE(result.ok);
  return ListIdleKeys(ToDsConfigJson(result), result.config, placement);
}

TEST(IdleKeysTest, AreThoseThatNeedADeviceOrANetwork) {
  const RankPlacement here{.on_cpu = true, .one_host = true};
  const std::string overlaps = R"("zero_optimization": {"stage": 2, "overlap_comm": true})";
  EXPECT_THAT(ListOf(overlaps, here),
              ElementsAre(HasSubstr("overlap_comm has no effect between CPU ranks")));
  EXPECT_THAT(ListOf(overlaps, {.on_cpu = true}), IsEmpty());
  EXPECT_THAT(ListOf(overlaps, {.one_host = true}), IsEmpty());
  EXPECT_THAT(ListOf(R"("zero_optimization": {"stage": 3})", here), IsEmpty()) << "by default";
  const std::string keeps = R"("activation_checkpointing": {"cpu_checkpointing": true})";
  EXPECT_THAT(ListOf(keeps, {.on_cpu = true}),
              ElementsAre(HasSubstr("cpu_checkpointing moves nothing")));
  EXPECT_THAT(ListOf(keeps, {.one_host = true}), IsEmpty());
}

}  // namespace
}  // namespace ds::config
