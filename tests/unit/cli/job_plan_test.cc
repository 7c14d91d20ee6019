#include "cli/job/job_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::Pair;

const Shell kUserShell{.environment = {{"HOME", "/root"}, {"NCCL_DEBUG", "INFO"}, {"PATH", "/bin"}},
                       .working_directory = "/here"};

// "a" is this machine; "b" and the spare "c" are not.
LaunchPlan TwoHostsAndASpare() {
  LaunchPlan launch{
      .world = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0, 1}}}),
      .spares = {{.host = "c", .slots = {0, 1}, .remote = true}}};
  launch.world.hosts[1].remote = true;
  return launch;
}

JobRequest RequestOf(LaunchFlags flags = {}, Environment exports = {}) {
  return {.job_id = "job",
          .flags = std::move(flags),
          .launch = TwoHostsAndASpare(),
          .exports = std::move(exports),
          .shell = kUserShell};
}

TEST(JobPlanTest, TakesThePlanAndTheFlags) {
  JobRequest request = RequestOf({.master_port = 4000, .umask = 7}, {{"LR", "3"}});
  request.notices = {"careful"};
  const JobPlan plan = PlanJob(request);
  EXPECT_EQ(plan.job_id, "job");
  EXPECT_EQ(plan.flags.master_port, 4000);
  EXPECT_EQ(plan.flags.umask, 7);
  EXPECT_EQ(plan.world.world_size(), 3);
  EXPECT_THAT(plan.exports, ElementsAre(Pair("LR", "3")));
  EXPECT_THAT(plan.notices, ElementsAre("careful"));
}

TEST(JobPlanTest, RanksAreAnyPrograms) {
  const JobPlan plan = PlanJob(RequestOf());
  EXPECT_FALSE(plan.purpose.built_in);
  EXPECT_FALSE(plan.purpose.trains);
  EXPECT_EQ(plan.purpose.first_generation, 0);
}

TEST(JobPlanTest, UnlessTheCommandNamesTheirUse) {
  const JobPlan plan = PlanJob(RequestOf(), {.built_in = true,
                                             .trains = true,
                                             .total_steps = 9,
                                             .first_generation = 2,
                                             .closing_lines = {"bye"}});
  EXPECT_TRUE(plan.purpose.built_in);
  EXPECT_TRUE(plan.purpose.trains);
  EXPECT_EQ(plan.purpose.total_steps, 9);
  EXPECT_EQ(plan.purpose.first_generation, 2);
  EXPECT_THAT(plan.purpose.closing_lines, ElementsAre("bye"));
}

TEST(JobPlanTest, SparesAreNumberedAfterTheHosts) {
  const JobPlan plan = PlanJob(RequestOf());
  EXPECT_EQ(plan.host_count(), 3);
  EXPECT_EQ(plan.host(0).host, "a");
  EXPECT_EQ(plan.host(2).host, "c");
}

TEST(JobPlanTest, RanksMeetAtTheGivenAddressOrTheFirstHost) {
  EXPECT_EQ(PlanJob(RequestOf()).master_addr, "a");
  EXPECT_EQ(PlanJob(RequestOf({.master_addr = "m"})).master_addr, "m");
}

TEST(JobPlanTest, AHostStartsInTheFolderOfItsEntryOrTheFlagOrHere) {
  JobRequest request = RequestOf();
  request.launch.world.hosts[1].entry.keys["workdir"] = "/data";
  const JobPlan here = PlanJob(request);
  EXPECT_EQ(here.host(0).working_directory, "/here");
  EXPECT_EQ(here.host(1).working_directory, "/data");
  EXPECT_EQ(here.host(2).working_directory, "/here");
  request.flags.workdir = "sub/../x";
  const JobPlan below = PlanJob(request);
  EXPECT_EQ(below.host(0).working_directory, "/here/x");
  EXPECT_EQ(below.host(1).working_directory, "/data");
  request.flags.workdir = "/else";
  EXPECT_EQ(PlanJob(request).host(0).working_directory, "/else");
}

TEST(JobPlanTest, ThisMachineInheritsTheShellAndOthersGetExports) {
  const JobPlan plan = PlanJob(RequestOf({}, {{"LR", "3"}}));
  EXPECT_THAT(plan.host(0).exports, ElementsAre(Pair("LR", "3")));
  for (const int number : {1, 2}) {
    EXPECT_THAT(plan.host(number).exports, Contains(Pair("NCCL_DEBUG", "INFO")));
    EXPECT_THAT(plan.host(number).exports, Contains(Pair("PYTHONPATH", "/here")));
    EXPECT_THAT(plan.host(number).exports, Contains(Pair("LR", "3")));
    EXPECT_THAT(plan.host(number).exports, Not(Contains(Pair("HOME", "/root"))));
    EXPECT_THAT(plan.host(number).exports, Not(Contains(Pair("PATH", "/bin"))));
  }
}

// By host of TwoHostsAndASpare: whether its ranks find OMP_NUM_THREADS.
std::vector<bool> ThreadsAreSet(const Environment& exports, const Environment& shell) {
  JobRequest request = RequestOf({}, exports);
  request.shell = {.environment = shell};
  const JobPlan plan = PlanJob(request);
  std::vector<bool> set;
  for (int number = 0; number < plan.host_count(); ++number) {
    set.push_back(plan.host(number).sets_threads);
  }
  return set;
}

TEST(JobPlanTest, ThreadsOfThisShellMeanNothingElsewhere) {
  EXPECT_THAT(ThreadsAreSet({}, {}), ElementsAre(false, false, false));
  EXPECT_THAT(ThreadsAreSet({}, {{"OMP_NUM_THREADS", "8"}}), ElementsAre(true, false, false));
  EXPECT_THAT(ThreadsAreSet({{"OMP_NUM_THREADS", "3"}}, {}), ElementsAre(true, true, true));
  EXPECT_THAT(ThreadsAreSet({{"OMP_NUM_THREADS", ""}}, {{"OMP_NUM_THREADS", "8"}}),
              ElementsAre(false, false, false))
      << "to export nothing is to set nothing";
}

TEST(GatherJobRequestTest, AnIdIsReadableAndUnique) {
  const auto id = [](const std::string& name) {
    return GatherJobRequest(name, {}, {"dsrun"})->job_id;
  };
  EXPECT_THAT(id("/usr/bin/my prog;rm"),
              ::testing::MatchesRegex("my-prog-rm-[0-9]{8}-[0-9]{6}-[0-9a-f]{16}"));
  EXPECT_THAT(id(""), ::testing::StartsWith("job-"));
  EXPECT_THAT(id(".."), ::testing::StartsWith("job..-"));
  EXPECT_LT(id(std::string(500, 'x')).size(), 64u);
}

TEST(GatherJobRequestTest, TheRunDirectoryIsTheUsersElseNamedAfterTheJob) {
  const std::filesystem::path here = std::filesystem::current_path();
  const JobRequest own = *GatherJobRequest("p", {}, {"dsrun", "p"});
  EXPECT_EQ(own.run_directory, here / "runs" / own.job_id);
  EXPECT_EQ(GatherJobRequest("p", {.run_dir = "x/../y"}, {"dsrun"})->run_directory, here / "y");
  EXPECT_EQ(GatherJobRequest("p", {.run_dir = "/r"}, {"dsrun"})->run_directory, "/r");
}

// As of an array job in one folder.
TEST(CreateRunDirectoryTest, ManyJobsInOneSecondHaveFoldersOfTheirOwn) {
  const ds::testing::TemporaryFolder folder;
  std::set<std::string> names;
  for (int job = 0; job < 300; ++job) {
    JobRequest request = *GatherJobRequest("p", {}, {"dsrun", "p"});
    request.run_directory = folder.path() / request.job_id;
    const auto run = CreateRunDirectory({}, &request.job_id, &request.run_directory);
    ASSERT_TRUE(run.ok()) << run.status().message();
    names.insert(request.job_id);
  }
  EXPECT_EQ(names.size(), 300U);
}

TEST(CreateRunDirectoryTest, AnAutomaticNameThatIsTakenIsReplaced) {
  const ds::testing::TemporaryFolder folder;
  std::string job_id = "p-20261121-071203-0000000000000000";
  std::filesystem::path path = folder.path() / job_id;
  std::filesystem::create_directory(path);
  const auto run = CreateRunDirectory({}, &job_id, &path);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_THAT(job_id, ::testing::MatchesRegex("p-20261121-071203-[0-9a-f]{16}"));
  EXPECT_NE(job_id, "p-20261121-071203-0000000000000000");
  EXPECT_EQ((*run)->path(), folder.path() / job_id);
  EXPECT_EQ(path, (*run)->path());
}

TEST(CreateRunDirectoryTest, AFolderThatTheUserNamesIsUsed) {
  const ds::testing::TemporaryFolder folder;
  std::string job_id = "p-1-2";
  std::filesystem::path path = folder.path();
  const auto run = CreateRunDirectory({.run_dir = path.string()}, &job_id, &path);
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(job_id, "p-1-2");
  EXPECT_EQ((*run)->path(), folder.path());
}

TEST(DescribeJobTest, NoWordShowsASecret) {
  JobRequest request = *GatherJobRequest("p", {}, {"dsrun", "p", "--key", "secret"});
  const nlohmann::ordered_json job =
      DescribeJob("run", PlanJob(std::move(request)), {"p", "--key", "secret"});
  EXPECT_EQ(job["command_line"], nlohmann::ordered_json({"dsrun", "p", "--key", "<redacted>"}));
  EXPECT_EQ(job["argv"], nlohmann::ordered_json({"p", "--key", "<redacted>"}));
  EXPECT_EQ(job["redacted"]["argv"], nlohmann::ordered_json::array({2}));
  EXPECT_FALSE(DescribeJob("train", PlanJob(RequestOf())).contains("argv"));
}

}  // namespace
}  // namespace ds::cli
