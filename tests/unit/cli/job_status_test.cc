#include "cli/agent/job_status.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

class JobStatusTest : public ::testing::Test {
 protected:
  static JobPlan MakePlan() {
    JobPlan plan;
    plan.job_id = "job-1";
    plan.world = PlanWorld(
        {{.host = "a", .slots = {0}, .devices = {}}, {.host = "b", .slots = {0}, .devices = {}}});
    plan.purpose.total_steps = 10;
    return plan;
  }
  void Add(const std::string& host, int generation, const v1::Event& event) {
    status_.OnEvent({host, generation, event}, std::chrono::nanoseconds());
  }

  JobStatus status_{MakePlan()};
};

TEST_F(JobStatusTest, BeginsWithPlannedRanks) {
  const Json json = status_.ToJson();
  EXPECT_EQ(json["state"], "starting");
  EXPECT_EQ(json["hosts"], Json({"a", "b"}));
  EXPECT_EQ(json["world_size"], 2);
  EXPECT_EQ(json["ranks"][1]["host"], "b");
  EXPECT_EQ(json["ranks"][1]["state"], "planned");
  EXPECT_TRUE(json["ranks"][1]["pid"].is_null());
  EXPECT_TRUE(json["step"].is_null());
}

TEST_F(JobStatusTest, FollowsTheRanks) {
  Add("a", 0, testing::Started(0, 100));
  Add("b", 0, testing::Started(1, 200));
  Add("a", 0, testing::Step(3, 1.5));
  v1::Event exited;
  exited.mutable_rank_exited()->set_rank(1);
  exited.mutable_rank_exited()->set_exit_code(4);
  Add("b", 0, exited);
  Json json = status_.ToJson();
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["ranks"][0]["pid"], 100);
  EXPECT_EQ(json["ranks"][1]["state"], "exited");
  EXPECT_EQ(json["ranks"][1]["exit_code"], 4);
  status_.OnStop();
  EXPECT_EQ(status_.ToJson()["state"], "stopping");
  EXPECT_TRUE(status_.ToJson()["verdict"].is_null());
  status_.OnEnd(Verdict{.cause = Cause::kUserStop, .message = "stopped"});
  EXPECT_EQ(status_.ToJson()["verdict"]["message"], "stopped");
  EXPECT_EQ(status_.ToJson()["state"], "ended");
}

TEST_F(JobStatusTest, ARestartBeginsAnew) {
  Add("b", 0, testing::Started(1, 200));
  Add("c", 1, testing::Started(1, 300));
  const Json json = status_.ToJson();
  EXPECT_EQ(json["generation"], 1);
  EXPECT_EQ(json["ranks"][1]["host"], "c") << "a spare";
  EXPECT_EQ(json["ranks"][1]["pid"], 300);
  EXPECT_EQ(json["ranks"][0]["state"], "planned");
}

TEST_F(JobStatusTest, IgnoresRanksOutsideTheWorld) {
  Add("a", 0, testing::Started(7, 100));
  EXPECT_EQ(status_.ToJson()["ranks"].size(), 2U);
}

}  // namespace
}  // namespace ds::cli
