#include "runtime/process/cpu_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace ds {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(KernelCpuListTest, ReadsListsOfTheKernel) {
  EXPECT_THAT(ParseKernelCpuList("0-2,5,7-8\n").value(), ElementsAre(0, 1, 2, 5, 7, 8));
  EXPECT_THAT(ParseKernelCpuList("3").value(), ElementsAre(3));
  EXPECT_THAT(ParseKernelCpuList("\n").value(), IsEmpty());
  EXPECT_THAT(ParseKernelCpuList("").value(), IsEmpty());
}

TEST(KernelCpuListTest, NothingElse) {
  for (const char* text :
       {"a", "1-", "-1", "3-1", "1,", ",", "1 2", "0-999999999", "99999999999"}) {
    EXPECT_FALSE(ParseKernelCpuList(text).ok()) << text;
  }
}

// A machine imitated by files: two sockets of two cores with two threads each, and memory that
// belongs to no core.
class CpuTopologyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "/topology-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    root_ = folder;
    for (int cpu = 0; cpu < 8; ++cpu) {
      Write("devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
    }
    Node(0, "0-1,4-5\n", 1024);
    Node(1, "2-3,6-7\n", 2048);
    Node(10, "\n", 512);
    Write("devices/system/node/nodes_online", "0-1,10\n");
    Write("devices/system/node/has_cpu", "0-1\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Node(int id, const std::string& cpus, int kibibytes) {
    const std::string folder = "devices/system/node/node" + std::to_string(id);
    Write(folder + "/cpulist", cpus);
    Write(folder + "/meminfo", "Node " + std::to_string(id) + " MemTotal:   " +
                                   std::to_string(kibibytes) + " kB\nNode 0 MemFree: 1 kB\n");
  }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ / "sys" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  std::filesystem::path root_;
};

TEST_F(CpuTopologyTest, OneCpuOfEveryCoreAndEveryNode) {
  const CpuTopology topology = ReadCpuTopology({0, 1, 2, 3, 4, 5, 6, 7}, root_);
  EXPECT_THAT(topology.cores, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(topology.nodes,
              ElementsAre(NumaNode{0, {0, 1, 4, 5}, 1 << 20}, NumaNode{1, {2, 3, 6, 7}, 2 << 20},
                          NumaNode{10, {}, 512 << 10}));
}

TEST_F(CpuTopologyTest, OnlyCpusThatMayBeUsedCount) {
  EXPECT_THAT(ReadCpuTopology({2, 5, 6}, root_).cores, ElementsAre(2, 5));
}

TEST(CpuTopologyWithoutSysTest, EveryCpuIsACoreAndNoNodeIsKnown) {
  const CpuTopology topology = ReadCpuTopology({0, 3}, "/nowhere");
  EXPECT_THAT(topology.cores, ElementsAre(0, 3));
  EXPECT_THAT(topology.nodes, IsEmpty());
}

TEST(CpuTopologyOfThisMachineTest, HasACore) {
  EXPECT_FALSE(ListAllowedCpus().empty());
  EXPECT_FALSE(ReadCpuTopology().cores.empty());
}

}  // namespace
}  // namespace ds
