#include "cli/launch/launch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ThisHost Machine(int gpus, int numa_nodes = 1) {
  return {.name = "me",
          .names = {"localhost", "::1", "me", "10.0.0.1"},
          .gpu_count = gpus,
          .numa_node_count = numa_nodes,
          .topology = {.cores = {0, 2, 4, 6},
                       .nodes = {{.id = 0, .cpus = {0, 2, 4, 6}, .memory_bytes = 1}}}};
}

class LaunchPlanTest : public ::testing::Test {
 protected:
  std::string Hostfile(const std::string& text) {
    const std::string path = (folder_.path() / "hosts").string();
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return path;
  }
  ds::testing::TemporaryFolder folder_;
};

TEST_F(LaunchPlanTest, WithoutAHostfileTheGpusAreTheSlots) {
  const auto plan = MakeLaunchPlan({}, Machine(3), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(plan->world.hosts[0].slots, ElementsAre(0, 1, 2));
  EXPECT_THAT(plan->world.hosts[0].devices, ElementsAre("0", "1", "2"));
}

TEST_F(LaunchPlanTest, VisibleDevicesAreTheSlotsInTheirOrder) {
  const auto all = MakeLaunchPlan({}, Machine(0), "3,1");
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(all->world.hosts[0].slots, ElementsAre(3, 1));
  const auto first = MakeLaunchPlan({.num_gpus = 1}, Machine(8), "3,1");
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(first->world.hosts[0].devices, ElementsAre("3"));
  const auto more = MakeLaunchPlan({.num_gpus = 3}, Machine(8), "3,1");
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().message(), "--num_gpus 3: host 'localhost' has 2 slots");
}

TEST_F(LaunchPlanTest, VisibleDevicesMayFollowBlanksButOnlyOnce) {
  const auto plan = MakeLaunchPlan({}, Machine(0), "2, 3 ");
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->world.hosts[0].slots, ElementsAre(2, 3));
  EXPECT_THAT(plan->world.hosts[0].devices, ElementsAre("2", "3"));
  const auto twice = MakeLaunchPlan({}, Machine(2), "0,1,0");
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.status().message(), "CUDA_VISIBLE_DEVICES names '0' twice");
  EXPECT_TRUE(MakeLaunchPlan({.device = Device::kCpu}, Machine(2), "0,0").ok());
}

TEST_F(LaunchPlanTest, DevicesWithNamesAreNumberedByTheirPlace) {
  const auto plan = MakeLaunchPlan({}, Machine(2), "GPU-8a56,MIG-77,-1,GPU-9");
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->world.hosts[0].slots, ElementsAre(0, 1));
  EXPECT_THAT(plan->world.hosts[0].devices, ElementsAre("GPU-8a56", "MIG-77"));
}

TEST_F(LaunchPlanTest, WithoutAGpuTheRanksRunOnCpu) {
  for (const char* visible : {static_cast<const char*>(nullptr), "", "-1"}) {
    const auto plan = MakeLaunchPlan({.num_gpus = 5}, Machine(0), visible);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->world.world_size(), 5);
    EXPECT_THAT(plan->world.hosts[0].devices, IsEmpty());
  }
  EXPECT_EQ(MakeLaunchPlan({}, Machine(0, 2), nullptr)->world.world_size(), 2)
      << "one per NUMA node";
  EXPECT_THAT(MakeLaunchPlan({.device = Device::kCpu}, Machine(8), nullptr)->world.hosts[0].devices,
              IsEmpty());
}

TEST_F(LaunchPlanTest, AFilterThatThisHostCannotMeetNamesARemedy) {
  const auto error = [](LaunchFlags flags, int gpus) {
    return MakeLaunchPlan(flags, Machine(gpus), nullptr).status().message();
  };
  EXPECT_THAT(error({.include = "localhost:0,1"}, 0),
              AllOf(HasSubstr("host 'localhost' has no slot 1 (its slots: 0); without a GPU"),
                    HasSubstr("--num_gpus N"), HasSubstr("'localhost slots=N'")));
  EXPECT_EQ(error({.include = "localhost:2"}, 2),
            "--include localhost:2: host 'localhost' has no slot 2 (its slots: 0-1)");
  EXPECT_THAT(error({.num_nodes = 4}, 0), HasSubstr("--hostfile FILE"));
  const std::string hostfile = Hostfile("a slots=1\n");
  EXPECT_EQ(error({.hostfile = hostfile, .num_nodes = 4}, 0), "--num_nodes 4: there is 1 host");
}

TEST_F(LaunchPlanTest, CudaWithoutAGpuIsRefused) {
  EXPECT_EQ(MakeLaunchPlan({.device = Device::kCuda}, Machine(0), nullptr).status().message(),
            "--device cuda: this host shows no GPU");
  EXPECT_EQ(MakeLaunchPlan({.device = Device::kCuda}, Machine(8), "").status().message(),
            "--device cuda: CUDA_VISIBLE_DEVICES hides every GPU");
}

TEST_F(LaunchPlanTest, AHostfileMayNameTheDevicesOfItsSlots) {
  LaunchFlags flags{.hostfile = Hostfile("a slots=3 gpus=5,4,GPU-1\nb slots=2\n"),
                    .include = "a:0,2@b"};
  const auto plan = MakeLaunchPlan(flags, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->world.hosts[0].slots, ElementsAre(0, 2));
  EXPECT_THAT(plan->world.hosts[0].devices, ElementsAre("5", "GPU-1"));
  EXPECT_THAT(plan->world.hosts[1].devices, ElementsAre("0", "1"));
  flags.device = Device::kCpu;
  EXPECT_THAT(MakeLaunchPlan(flags, Machine(0), nullptr)->world.hosts[0].devices, IsEmpty());
}

TEST_F(LaunchPlanTest, AHostfileIsNotJudgedByThisMachine) {
  const std::string hostfile = Hostfile("far slots=2\nme slots=64\n");
  const auto plan =
      MakeLaunchPlan({.hostfile = hostfile, .bind_cores_to_rank = true}, Machine(1), "0");
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->world.world_size(), 66);
  EXPECT_THAT(plan->world.hosts[0].devices, ElementsAre("0", "1"));
  EXPECT_THAT(plan->world.ranks[0].cores, IsEmpty());
}

TEST_F(LaunchPlanTest, GivenCoresAreDividedOnEveryHost) {
  LaunchFlags flags{.hostfile = Hostfile("a slots=2\nb slots=1\n"),
                    .bind_cores_to_rank = true,
                    .bind_core_list = "0-2"};
  const auto plan = MakeLaunchPlan(flags, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->world.ranks[0].cores, ElementsAre(0, 1));
  EXPECT_THAT(plan->world.ranks[1].cores, ElementsAre(2));
  EXPECT_THAT(plan->world.ranks[2].cores, ElementsAre(0, 1, 2));
}

TEST_F(LaunchPlanTest, ThisHostsCoresAreKnownWithoutAHostfile) {
  const auto plan =
      MakeLaunchPlan({.num_gpus = 3, .bind_cores_to_rank = true}, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->world.ranks[0].cores, ElementsAre(0, 2)) << "the core left over";
  EXPECT_THAT(plan->world.ranks[2].cores, ElementsAre(6));
  EXPECT_EQ(plan->world.ranks[2].memory, (MemoryPolicy{MemoryPolicy::Kind::kBind, {0}}));
  EXPECT_FALSE(
      MakeLaunchPlan({.num_gpus = 5, .bind_cores_to_rank = true}, Machine(0), nullptr).ok());
}

TEST_F(LaunchPlanTest, EveryNameOfThisMachineIsLocalAndNoOther) {
  for (const char* name : {"localhost", "127.0.0.1", "127.0.1.1", "::1", "me", "10.0.0.1"}) {
    EXPECT_TRUE(Machine(0).IsNamed(name)) << name;
  }
  for (const char* name : {"far", "10.0.0.2", "me2", "user@localhost", ""}) {
    EXPECT_FALSE(Machine(0).IsNamed(name)) << name;
  }
}

std::vector<std::string> Names(const std::vector<JobHost>& hosts) {
  std::vector<std::string> names;
  for (const JobHost& host : hosts) {
    EXPECT_EQ(host.entry.name, host.host);
    names.push_back(host.host + "/" + std::to_string(host.slots.size()));
  }
  return names;
}

std::vector<bool> RemoteOnes(const LaunchPlan& plan) {
  std::vector<bool> remote;
  for (const auto* hosts : {&plan.world.hosts, &plan.spares}) {
    for (const JobHost& host : *hosts) remote.push_back(host.remote);
  }
  return remote;
}

TEST_F(LaunchPlanTest, SparesTakeNoRanksAndFollowTheHosts) {
  LaunchFlags flags{.hostfile =
                        Hostfile("a slots=2 spare\nb slots=2\nc slots=3 spare\nme slots=4\n")};
  auto plan = MakeLaunchPlan(flags, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->world.world_size(), 6);
  EXPECT_THAT(Names(plan->spares), ElementsAre("a/2", "c/3"));
  EXPECT_THAT(Names(plan->world.hosts), ElementsAre("b/2", "me/4"));
  PlaceHosts(Machine(0), &*plan);
  EXPECT_THAT(RemoteOnes(*plan), ElementsAre(true, false, true, true));

  flags.num_gpus = 1;
  flags.num_nodes = 1;
  plan = MakeLaunchPlan(flags, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->world.world_size(), 1);
  EXPECT_THAT(Names(plan->spares), ElementsAre("a/1", "c/1"));
  flags.num_gpus = 3;
  EXPECT_EQ(MakeLaunchPlan(flags, Machine(0), nullptr).status().message(),
            "--num_gpus 3: host 'b' has 2 slots");
}

TEST_F(LaunchPlanTest, FiltersMeanSparesToo) {
  LaunchFlags flags{.hostfile = Hostfile("a slots=2 spare\nb slots=2\nc slots=3 spare\n"),
                    .exclude = "c:0"};
  auto plan = MakeLaunchPlan(flags, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(Names(plan->spares), ElementsAre("a/2", "c/2"));
  flags.exclude = "b";
  EXPECT_EQ(MakeLaunchPlan(flags, Machine(0), nullptr).status().message(),
            "every host is a spare; at least one must run ranks from the start");
  flags.exclude = "";
  flags.include = "b@a";
  plan = MakeLaunchPlan(flags, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(Names(plan->spares), ElementsAre("a/2"));
}

TEST_F(LaunchPlanTest, DistinguishesThisMachineFromSshHosts) {
  const std::string text =
      "far slots=1\nme slots=1\n10.0.0.1 slots=1 workdir=/tmp address=10.0.0.1\n"
      "localhost slots=1 port=2222\nuser@me slots=1\n127.0.0.1 slots=1 exec=env\n"
      "::1 slots=1 hostkey=SHA256:" +
      std::string(43, 'a') + "\n";
  const LaunchFlags flags{.hostfile = Hostfile(text)};
  auto plan = MakeLaunchPlan(flags, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok());
  PlaceHosts(Machine(0), &*plan);
  EXPECT_THAT(RemoteOnes(*plan), ElementsAre(true, false, false, true, true, true, true));
}

TEST_F(LaunchPlanTest, TwoNamesOfThisMachineAreRefused) {
  LaunchFlags flags{.hostfile = Hostfile("far slots=1\nme slots=1\n127.0.0.1 slots=1\n")};
  auto plan = MakeLaunchPlan(flags, Machine(0), nullptr);
  ASSERT_TRUE(plan.ok());
  PlaceHosts(Machine(0), &*plan);
  const Status refused = CheckNamesOfThisHost(flags, *plan);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr(*flags.hostfile + ": me and 127.0.0.1 are both"));
  flags.share_machine = true;
  EXPECT_TRUE(CheckNamesOfThisHost(flags, *plan).ok());
  plan->world.hosts.pop_back();
  EXPECT_TRUE(CheckNamesOfThisHost({}, *plan).ok()) << "one name, and another host";
}

TEST(ProbeThisHostTest, SeesThisMachine) {
  const ThisHost host = ProbeThisHost({.cores = true, .addresses = true});
  EXPECT_TRUE(host.IsNamed("localhost"));
  for (const char* loopback : {"127.0.0.1", "127.0.0.2", "127.255.255.254"}) {
    EXPECT_TRUE(host.IsNamed(loopback)) << loopback;
  }
  for (const char* other : {"127.not-this-machine.example", "127.", "127.1.example", "128.0.0.1"}) {
    EXPECT_FALSE(host.IsNamed(other)) << other;
  }
  EXPECT_TRUE(host.IsNamed(host.name));
  EXPECT_FALSE(host.topology.cores.empty());
  EXPECT_GE(host.numa_node_count, 1);
  EXPECT_THAT(host.names, Contains("127.0.0.1"));
}

TEST(ProbeThisHostTest, ProbesOnlyRequestedFacts) {
  const ThisHost host = ProbeThisHost({});
  EXPECT_TRUE(host.topology.cores.empty());
  EXPECT_THAT(host.names, Not(Contains("127.0.0.1")));
  EXPECT_TRUE(host.IsNamed("localhost"));
}

TEST(ProbeThisHostTest, AHostfileIsComparedWithTheAddresses) {
  EXPECT_FALSE(ChooseProbe({}).addresses);
  EXPECT_TRUE(ChooseProbe({.hostfile = "hosts"}).addresses);
  EXPECT_TRUE(ChooseProbe({.bind_cores_to_rank = true}).cores);
}

}  // namespace
}  // namespace ds::cli
