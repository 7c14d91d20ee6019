#include "cli/job/job_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "cli/job/job_id.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

JobRequest TwoHosts() {
  JobRequest job{.job_id = "job",
                 .plan = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0, 1}}}),
                 .working_directories = {"/a", "/b"},
                 .exports = {{{"Y", "3"}}, {{"X", "1=2"}}},
                 .master_addr = "a",
                 .grace_seconds = 3};
  return job;
}

TEST(PrepareRequestTest, OnlyTheHostOfRankZeroLeasesThePort) {
  JobRequest job = TwoHosts();
  job.master_port = 4000;
  job.executable = "prog";
  job.script = "x.py";
  EXPECT_TRUE(MakePrepareRequest(job, 0).lease_master_port());
  const v1::PrepareRequest second = MakePrepareRequest(job, 1);
  EXPECT_FALSE(second.lease_master_port());
  EXPECT_EQ(second.rank_count(), 2u);
  EXPECT_EQ(second.program(), "prog");
  EXPECT_EQ(second.script(), "x.py");
  EXPECT_EQ(second.working_directory(), "/b");
}

TEST(PrepareRequestTest, ThePathIsTheHostsOwnUnlessItIsExported) {
  JobRequest job = TwoHosts();
  EXPECT_EQ(MakePrepareRequest(job, 0).search_path(), "");
  job.exports[0].emplace_back("PATH", "/opt");
  EXPECT_EQ(MakePrepareRequest(job, 0).search_path(), "/opt");
}

TEST(PrepareRequestTest, NamesTheDevicesOfTheHost) {
  JobRequest job = TwoHosts();
  job.plan.hosts[1].devices = {"3", "GPU-8f2a"};
  EXPECT_THAT(MakePrepareRequest(job, 1).devices(), ElementsAre("3", "GPU-8f2a"));
  EXPECT_EQ(MakePrepareRequest(job, 0).devices_size(), 0);
}

TEST(LaunchRequestTest, CarriesArgumentsAndEnvironmentAsBytes) {
  const RankProgram program{.argv = {"prog", "", "a b\n\xFF", "$HOME"},
                            .files = {{"train.json", "{}"}}};
  const v1::LaunchRequest request =
      MakeLaunchRequest(TwoHosts(), program, {.node_rank = 1, .generation = 2, .master_port = 9});
  ASSERT_EQ(request.ranks_size(), 2);
  EXPECT_THAT(request.ranks(0).argv(), ElementsAre("prog", "", "a b\n\xFF", "$HOME"));
  EXPECT_EQ(request.ranks(0).rank(), 1u);
  EXPECT_EQ(request.ranks(1).local_rank(), 1u);
  EXPECT_EQ(request.environment(0).name(), "X");
  EXPECT_EQ(request.environment(0).value(), "1=2");
  EXPECT_TRUE(request.inherit_environment());
  EXPECT_EQ(request.generation(), 2u);
  EXPECT_EQ(request.working_directory(), "/b");
  EXPECT_EQ(request.grace_seconds(), 3);
  EXPECT_EQ(request.files(0).name(), "train.json");
  EXPECT_FALSE(request.has_umask());
}

TEST(LaunchRequestTest, CarriesMaskAndLimits) {
  JobRequest job = TwoHosts();
  job.umask = 0;
  job.limits = {{"nofile", 64, 128}};
  const v1::LaunchRequest request = MakeLaunchRequest(job, {.argv = {"p"}}, {.node_rank = 0});
  EXPECT_TRUE(request.has_umask());
  EXPECT_EQ(request.umask(), 0u);
  ASSERT_EQ(request.limits_size(), 1);
  EXPECT_EQ(request.limits(0).name(), "nofile");
  EXPECT_EQ(request.limits(0).soft(), 64u);
  EXPECT_EQ(request.limits(0).hard(), 128u);
}

TEST(RemoteRequestTest, ThisShellsPathAndThreadsMeanNothingElsewhere) {
  JobRequest job = TwoHosts();
  job.remote = {false, true};
  job.user_set_threads = true;
  const RankProgram program{.argv = {"prog"}};
  const auto threads = [&](int node_rank) {
    const v1::LaunchRequest request =
        MakeLaunchRequest(job, program, {.node_rank = node_rank, .core_count = 8});
    for (const auto& variable : request.ranks(0).environment()) {
      if (variable.name() == "OMP_NUM_THREADS") return variable.value();
    }
    return std::string("unset");
  };
  EXPECT_EQ(MakePrepareRequest(job, 0).search_path(), "") << "the daemon inherits it";
  EXPECT_EQ(MakePrepareRequest(job, 1).search_path(), "");
  EXPECT_EQ(threads(0), "unset");
  EXPECT_EQ(threads(1), "4");
  job.exports[1] = {{"PATH", "/exported"}, {"OMP_NUM_THREADS", "3"}};
  EXPECT_EQ(MakePrepareRequest(job, 1).search_path(), "/exported");
  EXPECT_EQ(threads(1), "unset");
}

TEST(LaunchRequestTest, LocalRankGoesRightBehindTheProgram) {
  JobRequest job = TwoHosts();
  job.local_rank_position = 2;
  const LaunchDetails details{.node_rank = 1};
  EXPECT_THAT(MakeLaunchRequest(job, {.argv = {"python3", "x.py", "y"}}, details).ranks(1).argv(),
              ElementsAre("python3", "x.py", "--local_rank=1", "y"));
  EXPECT_THAT(MakeLaunchRequest(job, {.argv = {"python3", "x.py"}}, details).ranks(0).argv(),
              ElementsAre("python3", "x.py", "--local_rank=0"));
}

TEST(LaunchRequestTest, BoundCoresAndMemoryTravelWithTheRank) {
  JobRequest job = TwoHosts();
  job.bind_cores = true;
  v1::PrepareResponse small;
  small.add_usable_cores(0);
  small.add_usable_cores(1);
  v1::PrepareResponse large;
  for (const int core : {4, 5, 6}) large.add_usable_cores(core);
  v1::NumaNode* node = large.add_numa_nodes();
  node->set_id(1);
  for (const int cpu : {4, 5, 6}) node->add_cpus(cpu);
  node->set_memory_bytes(1);
  ASSERT_TRUE(BindHosts({small, large}, &job).ok());
  const v1::LaunchRequest request =
      MakeLaunchRequest(job, {.argv = {"p"}}, {.node_rank = 1, .core_count = 64});
  EXPECT_THAT(request.ranks(0).cores(), ElementsAre(4, 5));
  EXPECT_THAT(request.ranks(1).cores(), ElementsAre(6));
  EXPECT_EQ(request.ranks(1).memory_policy().kind(), v1::MemoryPolicy::BIND);
  EXPECT_THAT(request.ranks(1).memory_policy().nodes(), ElementsAre(1));
  EXPECT_FALSE(
      MakeLaunchRequest(job, {.argv = {"p"}}, {.node_rank = 0}).ranks(0).has_memory_policy());
}

TEST(BindHostsTest, AGivenListIsDividedInsteadAndTooFewCoresAreNamed) {
  JobRequest job = TwoHosts();
  const std::vector<v1::PrepareResponse> hosts(2);
  EXPECT_TRUE(BindHosts(hosts, &job).ok()) << "nobody asked for it";
  job.bind_cores = true;
  EXPECT_FALSE(BindHosts(hosts, &job).ok());
  job.core_list = {7, 8};
  ASSERT_TRUE(BindHosts(hosts, &job).ok());
  EXPECT_THAT(MakeLaunchRequest(job, {.argv = {"p"}}, {.node_rank = 1}).ranks(1).cores(),
              ElementsAre(8));
}

TEST(JobIdTest, ReadableAndUnique) {
  const std::string id = MakeJobId("/usr/bin/my prog;rm", 1'700'000'000'000'000'000);
  EXPECT_THAT(id, ::testing::MatchesRegex("my-prog-rm-[0-9]{8}-[0-9]{6}-[0-9a-f]{4}"));
  EXPECT_THAT(MakeJobId("", 0), ::testing::StartsWith("job-"));
  EXPECT_THAT(MakeJobId("..", 0), ::testing::StartsWith("job..-"));
  EXPECT_LT(MakeJobId(std::string(500, 'x'), 0).size(), 64u);
}

}  // namespace
}  // namespace ds::cli
