#include "runtime/comm/rank_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

namespace ds::comm {
namespace {

using ::testing::HasSubstr;

constexpr std::array kVariables = {"RANK",
                                   "WORLD_SIZE",
                                   "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   "MASTER_ADDR",
                                   "MASTER_PORT",
                                   "DSRUN_JOB_ID",
                                   "DSRUN_GENERATION",
                                   "DSRUN_COLLECTIVE_TIMEOUT",
                                   "DEEPSPEED_TIMEOUT"};

class RankIdentityTest : public ::testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    for (const char* name : kVariables) unsetenv(name);
  }
  static void Set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
};

TEST_F(RankIdentityTest, NothingSetIsAWorldOfOne) {
  const StatusOr<RankIdentity> id = RankIdentityFromEnvironment();
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(id->rank, 0);
  EXPECT_EQ(id->world_size, 1);
  EXPECT_EQ(id->local_world_size, 1);
}

TEST_F(RankIdentityTest, ReadsTheVariablesOfTheLauncher) {
  Set("RANK", "5");
  Set("WORLD_SIZE", "8");
  Set("LOCAL_RANK", "1");
  Set("LOCAL_WORLD_SIZE", "4");
  Set("MASTER_PORT", "29500");
  Set("DSRUN_JOB_ID", "j7");
  Set("DSRUN_GENERATION", "2");
  const StatusOr<RankIdentity> id = RankIdentityFromEnvironment();
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_EQ(id->rank, 5);
  EXPECT_EQ(id->world_size, 8);
  EXPECT_EQ(id->local_rank, 1);
  EXPECT_EQ(id->local_world_size, 4);
  EXPECT_EQ(id->master_port, 29500);
  EXPECT_EQ(id->job_id, "j7");
  EXPECT_EQ(id->generation, 2);
}

TEST_F(RankIdentityTest, TheCollectiveTimeoutIsDsrunsThenDeepSpeedsThenHalfAnHour) {
  EXPECT_EQ(CollectiveTimeoutFromEnvironment().value(), std::chrono::minutes(30));
  Set("DEEPSPEED_TIMEOUT", "90");
  EXPECT_EQ(CollectiveTimeoutFromEnvironment().value(), std::chrono::minutes(90));
  Set("DSRUN_COLLECTIVE_TIMEOUT", "2.5");
  EXPECT_EQ(CollectiveTimeoutFromEnvironment().value(), std::chrono::milliseconds(2500));
}

TEST_F(RankIdentityTest, ATimeThatIsNoneIsRefusedByName) {
  for (const char* bad : {"", "soon", "0", "-1", "nan", "inf", "1e9"}) {
    Set("DSRUN_COLLECTIVE_TIMEOUT", bad);
    const Status status = CollectiveTimeoutFromEnvironment().status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("DSRUN_COLLECTIVE_TIMEOUT=\"" + std::string(bad)));
  }
}

TEST_F(RankIdentityTest, WithoutLocalVariablesAllRanksShareTheHost) {
  Set("RANK", "1");
  Set("WORLD_SIZE", "2");
  Set("MASTER_PORT", "1");
  const StatusOr<RankIdentity> id = RankIdentityFromEnvironment();
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(id->local_rank, 1);
  EXPECT_EQ(id->local_world_size, 2);
}

struct BadValue {
  const char* variable;
  const char* value;
  const char* complaint;
};

class BadIdentityTest : public RankIdentityTest, public ::testing::WithParamInterface<BadValue> {};

TEST_P(BadIdentityTest, IsRefusedByName) {
  Set("RANK", "0");
  Set("WORLD_SIZE", "2");
  Set("MASTER_PORT", "29500");
  Set(GetParam().variable, GetParam().value);
  const Status status = RankIdentityFromEnvironment().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().variable));
  EXPECT_THAT(status.message(), HasSubstr(GetParam().complaint));
}

INSTANTIATE_TEST_SUITE_P(
    Values, BadIdentityTest,
    ::testing::Values(BadValue{"RANK", "2", "outside 0..1"}, BadValue{"RANK", "-1", "outside"},
                      BadValue{"RANK", "1x", "not a whole number"},
                      BadValue{"RANK", "", "not a whole number"},
                      BadValue{"WORLD_SIZE", "0", "outside"},
                      BadValue{"LOCAL_WORLD_SIZE", "3", "outside 1..2"},
                      BadValue{"LOCAL_RANK", "2", "outside 0..1"},
                      BadValue{"MASTER_PORT", "65536", "outside 1..65535"},
                      BadValue{"DSRUN_GENERATION", "9999999999", "not a whole number"}));

TEST_F(RankIdentityTest, HalfAWorldIsRefused) {
  Set("RANK", "0");
  EXPECT_THAT(RankIdentityFromEnvironment().status().message(), HasSubstr("WORLD_SIZE is missing"));
  Clear();
  Set("RANK", "0");
  Set("WORLD_SIZE", "2");
  EXPECT_THAT(RankIdentityFromEnvironment().status().message(),
              HasSubstr("MASTER_PORT is missing"));
}

}  // namespace
}  // namespace ds::comm
