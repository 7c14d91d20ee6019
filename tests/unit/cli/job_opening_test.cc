#include "cli/session/job_opening.h"

#include <gtest/gtest.h>

#include "runtime/process/cpu_topology.h"

namespace ds::cli {
namespace {

constexpr OpeningOptions kLaunches{.launches = true, .forward_input = true};

JobRequest OneHost() {
  JobRequest job{.job_id = "job",
                 .plan = PlanWorld({{.host = "here", .slots = {0, 1}}}),
                 .working_directories = {"/"},
                 .exports = {{}},
                 .master_addr = "127.0.0.1"};
  job.program = [](int) -> StatusOr<RankProgram> { return RankProgram{.argv = {"prog"}}; };
  return job;
}

TEST(JobOpening, AsksForTheLaunchThatTheControllerWillAskFor) {
  const JobRequest job = OneHost();
  const JobOpening opening = MakeOpening(job, 0, kLaunches);
  EXPECT_EQ(opening.prepare.SerializeAsString(), MakePrepareRequest(job, 0).SerializeAsString());
  ASSERT_TRUE(opening.launch.has_value());
  ASSERT_TRUE(opening.port.has_value());
  const v1::LaunchRequest later =
      MakeLaunchRequest(job, RankProgram{.argv = {"prog"}},
                        {.node_rank = 0,
                         .generation = 0,
                         .master_port = opening.port->port(),
                         .core_count = static_cast<int>(AllowedCpus().size()),
                         .forward_input = true});
  EXPECT_EQ(opening.launch->SerializeAsString(), later.SerializeAsString());
}

TEST(JobOpening, APortThatTheUserNamesIsTheDaemonsToLease) {
  JobRequest job = OneHost();
  job.master_port = 29500;
  const JobOpening opening = MakeOpening(job, 0, kLaunches);
  EXPECT_TRUE(opening.launch.has_value());
  EXPECT_FALSE(opening.port.has_value());
}

TEST(JobOpening, RanksThatMustWaitForOtherHostsAreNotStarted) {
  JobRequest job = OneHost();
  job.plan = PlanWorld({{.host = "here", .slots = {0}}, {.host = "there", .slots = {0}}});
  EXPECT_FALSE(MakeOpening(job, 0, kLaunches).launch.has_value());
}

TEST(JobOpening, RanksWhoseCoresAreNotKnownAreNotStarted) {
  JobRequest job = OneHost();
  job.bind_cores = true;
  EXPECT_FALSE(MakeOpening(job, 0, kLaunches).launch.has_value());
}

TEST(JobOpening, RanksWhoseProgramCannotBeMadeAreNotStarted) {
  JobRequest job = OneHost();
  job.program = [](int) -> StatusOr<RankProgram> { return DataLossError("no checkpoint"); };
  const JobOpening opening = MakeOpening(job, 0, kLaunches);
  EXPECT_FALSE(opening.launch.has_value());
  EXPECT_FALSE(opening.port.has_value());
}

TEST(JobOpening, OnlyWhoMayLaunchDoes) {
  EXPECT_FALSE(MakeOpening(OneHost(), 0, {.launches = false}).launch.has_value());
}

}  // namespace
}  // namespace ds::cli
