#include "cli/job/wire_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

const RankProgram kProgram{.argv = {"prog"}};

JobPlan TwoHosts() {
  JobPlan job{.job_id = "job",
              .flags = {.grace_seconds = 3},
              .world = PlanWorld({{.host = "a", .slots = {0}}, {.host = "b", .slots = {0, 1}}}),
              .master_addr = "a"};
  job.world.hosts[0].working_directory = "/a";
  job.world.hosts[0].exports = {{"Y", "3"}};
  job.world.hosts[1].working_directory = "/b";
  job.world.hosts[1].exports = {{"X", "1=2"}};
  return job;
}

TEST(PrepareRequestTest, OnlyTheHostOfRankZeroLeasesThePort) {
  JobPlan job = TwoHosts();
  job.flags.master_port = 4000;
  const RankProgram program{.argv = {"prog", "x.py"}, .script = "x.py"};
  EXPECT_TRUE(MakePrepareRequest(job, program, 0, 0).lease_master_port());
  const v1::PrepareRequest second = MakePrepareRequest(job, program, 1, 0);
  EXPECT_FALSE(second.lease_master_port());
  EXPECT_EQ(second.rank_count(), 2u);
  EXPECT_EQ(second.program(), "prog");
  EXPECT_EQ(second.script(), "x.py");
  EXPECT_EQ(second.working_directory(), "/b");
}

TEST(PrepareRequestTest, ThePathIsTheHostsOwnUnlessItIsExported) {
  JobPlan job = TwoHosts();
  EXPECT_EQ(MakePrepareRequest(job, kProgram, 0, 0).search_path(), "");
  job.world.hosts[0].exports.emplace_back("PATH", "/opt");
  EXPECT_EQ(MakePrepareRequest(job, kProgram, 0, 0).search_path(), "/opt");
}

TEST(PrepareRequestTest, HostsDescribeTheirPythonWhereThereAreSeveral) {
  JobPlan job = TwoHosts();
  const v1::PrepareRequest other = MakePrepareRequest(job, kProgram, 1, 0);
  EXPECT_FALSE(other.describe_python() || other.is_interpreter());
  EXPECT_EQ(other.environment_size(), 0);
  const RankProgram script{.argv = {"/env/bin/py", "x.py"}, .has_interpreter = true};
  const v1::PrepareRequest own = MakePrepareRequest(job, script, 1, 0);
  EXPECT_TRUE(own.describe_python() && own.is_interpreter());
  ASSERT_EQ(own.environment_size(), 1);
  EXPECT_EQ(own.environment(0).name(), "X");
  const v1::PrepareRequest named = MakePrepareRequest(job, {.argv = {"python3", "x"}}, 1, 0);
  EXPECT_TRUE(named.describe_python() && !named.is_interpreter());
  job.world.hosts.pop_back();
  EXPECT_FALSE(MakePrepareRequest(job, script, 0, 0).describe_python());
}

TEST(PrepareRequestTest, NamesTheDevicesOfTheHost) {
  JobPlan job = TwoHosts();
  job.world.hosts[1].devices = {"3", "GPU-8f2a"};
  EXPECT_THAT(MakePrepareRequest(job, kProgram, 1, 0).devices(), ElementsAre("3", "GPU-8f2a"));
  EXPECT_EQ(MakePrepareRequest(job, kProgram, 0, 0).devices_size(), 0);
}

TEST(LaunchRequestTest, CarriesArgumentsAndEnvironmentAsBytes) {
  const RankProgram program{.argv = {"prog", "", "a b\n\xFF", "$HOME"},
                            .files = {{"train.json", "{}"}}};
  const v1::LaunchRequest request =
      MakeLaunchRequest(TwoHosts(), program, {.node_rank = 1, .generation = 2, .master_port = 9});
  ASSERT_EQ(request.ranks_size(), 2);
  EXPECT_THAT(request.argv(), ElementsAre("prog", "", "a b\n\xFF", "$HOME"));
  EXPECT_EQ(request.ranks(0).rank(), 1u);
  EXPECT_EQ(request.environment(0).name(), "X");
  EXPECT_EQ(request.environment(0).value(), "1=2");
  EXPECT_TRUE(request.inherit_environment());
  EXPECT_EQ(request.generation(), 2u);
  EXPECT_EQ(request.working_directory(), "/b");
  EXPECT_EQ(request.grace_seconds(), 3);
  EXPECT_EQ(request.files(0).name(), "train.json");
  EXPECT_FALSE(request.has_umask());
}

// A message has a limit, and a host may have hundreds of ranks.
TEST(LaunchRequestTest, LargeArgumentsTravelOnce) {
  JobPlan job = TwoHosts();
  job.world = PlanWorld({{.host = "a", .slots = std::vector<int>(700)}});
  for (const int position : {0, 1}) {
    const RankProgram program{.argv = {"prog", std::string(100'000, 'x')},
                              .local_rank_position = position};
    EXPECT_LT(MakeLaunchRequest(job, program, {.node_rank = 0}).ByteSizeLong(), 1'000'000U);
  }
}

TEST(LaunchRequestTest, CarriesMaskAndLimits) {
  JobPlan job = TwoHosts();
  job.flags.umask = 0;
  job.flags.ulimits = {"nofile=64:128"};
  const v1::LaunchRequest request = MakeLaunchRequest(job, kProgram, {.node_rank = 0});
  EXPECT_TRUE(request.has_umask());
  EXPECT_EQ(request.umask(), 0u);
  ASSERT_EQ(request.limits_size(), 1);
  EXPECT_EQ(request.limits(0).name(), "nofile");
  EXPECT_EQ(request.limits(0).soft(), 64u);
  EXPECT_EQ(request.limits(0).hard(), 128u);
}

TEST(LaunchRequestTest, KeepsAGivenNumberOfThreads) {
  JobPlan job = TwoHosts();
  job.world.hosts[0].sets_threads = true;
  const auto threads = [&](int node_rank) {
    const v1::LaunchRequest request =
        MakeLaunchRequest(job, kProgram, {.node_rank = node_rank, .core_count = 8});
    for (const auto& variable : request.ranks(0).environment()) {
      if (variable.name() == "OMP_NUM_THREADS") return variable.value();
    }
    return std::string("unset");
  };
  EXPECT_EQ(threads(0), "unset");
  EXPECT_EQ(threads(1), "4");
}

TEST(LaunchRequestTest, LocalRankFollowsTheProgram) {
  const LaunchDetails details{.node_rank = 1};
  const RankProgram program{.argv = {"python3", "x.py", "y"}, .local_rank_position = 2};
  const v1::LaunchRequest request = MakeLaunchRequest(TwoHosts(), program, details);
  EXPECT_THAT(request.argv(), ElementsAre("python3", "x.py", "y"));
  EXPECT_EQ(request.own_argument_position(), 2U);
  EXPECT_EQ(request.ranks(0).own_argument(), "--local_rank=0");
  EXPECT_EQ(request.ranks(1).own_argument(), "--local_rank=1");
}

TEST(LaunchRequestTest, BoundCoresAndMemoryTravelWithTheRank) {
  JobPlan job = TwoHosts();
  job.flags.bind_cores_to_rank = true;
  v1::PrepareResponse small;
  small.add_usable_cores(0);
  small.add_usable_cores(1);
  v1::PrepareResponse large;
  for (const int core : {4, 5, 6}) large.add_usable_cores(core);
  v1::NumaNode* node = large.add_numa_nodes();
  node->set_id(1);
  for (const int cpu : {4, 5, 6}) node->add_cpus(cpu);
  node->set_memory_bytes(1);
  ASSERT_TRUE(BindHost(small, 0, &job).ok());
  ASSERT_TRUE(BindHost(large, 1, &job).ok());
  const v1::LaunchRequest request =
      MakeLaunchRequest(job, kProgram, {.node_rank = 1, .core_count = 64});
  EXPECT_THAT(request.ranks(0).cores(), ElementsAre(4, 5));
  EXPECT_THAT(request.ranks(1).cores(), ElementsAre(6));
  EXPECT_EQ(request.ranks(1).memory_policy().kind(), v1::MemoryPolicy::BIND);
  EXPECT_THAT(request.ranks(1).memory_policy().nodes(), ElementsAre(1));
  EXPECT_FALSE(MakeLaunchRequest(job, kProgram, {.node_rank = 0}).ranks(0).has_memory_policy());
}

TEST(BindHostTest, AGivenListIsDividedInsteadAndTooFewCoresAreNamed) {
  JobPlan job = TwoHosts();
  EXPECT_TRUE(BindHost({}, 1, &job).ok()) << "nobody asked for it";
  job.flags.bind_cores_to_rank = true;
  EXPECT_FALSE(BindHost({}, 1, &job).ok());
  job.flags.bind_core_list = "7,8";
  ASSERT_TRUE(BindHost({}, 1, &job).ok());
  EXPECT_THAT(MakeLaunchRequest(job, kProgram, {.node_rank = 1}).ranks(1).cores(), ElementsAre(8));
}

TEST(PutInPlaceTest, TheRanksKeepTheirNumbersAndGetTheSparesSlots) {
  JobPlan job{.world = PlanWorld({{.host = "a", .slots = {0, 1}}, {.host = "b", .slots = {0, 1}}})};
  job.world.hosts[0].working_directory = "/a";
  job.world.ranks[3].cores = {1};
  PutInPlace({.host = "c",
              .slots = {4, 6},
              .devices = {"4", "6"},
              .remote = true,
              .working_directory = "/c",
              .exports = {{"C", "1"}}},
             1, &job);
  EXPECT_EQ(job.world.world_size(), 4);
  const PlannedRank& last = job.world.ranks[3];
  EXPECT_EQ(last.local_rank, 1);
  EXPECT_EQ(last.slot, 6);
  EXPECT_TRUE(last.cores.empty());
  const JobHost& replaced = job.world.host_of(last);
  EXPECT_EQ(replaced.host, "c");
  EXPECT_EQ(replaced.first_rank, 2);
  EXPECT_THAT(replaced.devices, ElementsAre("4", "6"));
  EXPECT_EQ(replaced.working_directory, "/c");
  EXPECT_EQ(replaced.exports, (Environment{{"C", "1"}}));
  EXPECT_TRUE(replaced.remote);
  EXPECT_EQ(job.world.hosts[0].host, "a");
  EXPECT_EQ(job.world.hosts[0].working_directory, "/a");
}

}  // namespace
}  // namespace ds::cli
