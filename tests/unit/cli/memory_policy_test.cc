// The table of DeepSpeed's core binding: nodes, cores and ranks to what its numactl line would say.
// Where cores are left over they go to the first ranks here, so those rows differ and say so.

#include "cli/launch/memory_policy.h"

#include <gtest/gtest.h>

#include <numeric>

#include "cli/launch/core_list.h"
#include "runtime/base/number_list.h"

namespace ds::cli {
namespace {

using Nodes = std::vector<std::string>;  // by id: the node's cpus, "" = none

struct BindingCase {
  const char* name;
  Nodes nodes;
  std::string cores;  // to be divided
  int ranks;
  int local_rank;
  std::string expected_cores;
  std::string expected_memory;
};

std::vector<NumaNode> MakeNodes(const Nodes& cpus) {
  std::vector<NumaNode> nodes;
  for (const std::string& list : cpus) {
    nodes.push_back({.id = static_cast<int>(nodes.size()),
                     .cpus = ParseKernelCpuList(list).value(),
                     .memory_bytes = 1});
  }
  return nodes;
}

class BindingTest : public ::testing::TestWithParam<BindingCase> {};

TEST_P(BindingTest, CoresAndMemory) {
  const BindingCase& test = GetParam();
  const auto shares = DivideCores(ParseCoreList(test.cores).value(), test.ranks);
  ASSERT_TRUE(shares.ok()) << shares.status().message();
  const std::vector<int>& cores = (*shares)[static_cast<std::size_t>(test.local_rank)];
  EXPECT_EQ(FormatNumberList(cores), test.expected_cores);
  EXPECT_EQ(ShowMemoryPolicy(ChooseMemory(MakeNodes(test.nodes), cores)), test.expected_memory);
}

const Nodes kDocNodes = {"0-31", "32-63"};
const Nodes kTwoSockets = {"0-27,56-83", "28-55,84-111"};
const Nodes kFlatHbm = {"0-1", "2-3", "", ""};
const Nodes kFake = {"0-1", "0-1", "2-3", "2-3"};

INSTANTIATE_TEST_SUITE_P(
    Table, BindingTest,
    ::testing::Values(
        BindingCase{"doc_example_r0", kDocNodes, "0-27,32-59", 4, 0, "0-13", "bind 0"},
        BindingCase{"doc_example_r1", kDocNodes, "0-27,32-59", 4, 1, "14-27", "bind 0"},
        BindingCase{"doc_example_r2", kDocNodes, "0-27,32-59", 4, 2, "32-45", "bind 1"},
        BindingCase{"doc_example_r3", kDocNodes, "0-27,32-59", 4, 3, "46-59", "bind 1"},
        BindingCase{"two_sockets_all_r0", kTwoSockets, "0-55", 2, 0, "0-27", "bind 0"},
        BindingCase{"two_sockets_all_r1", kTwoSockets, "0-55", 2, 1, "28-55", "bind 1"},
        // 56 cores and 3 ranks: 18 each there, and two cores idle.
        BindingCase{"three_ranks_two_sockets_r0", kTwoSockets, "0-55", 3, 0, "0-18", "bind 0"},
        BindingCase{"three_ranks_two_sockets_r1", kTwoSockets, "0-55", 3, 1, "19-37", ""},
        BindingCase{"three_ranks_two_sockets_r2", kTwoSockets, "0-55", 3, 2, "38-55", "bind 1"},
        BindingCase{"spans_no_m", {"0-1", "2-3"}, "0-3", 1, 0, "0-3", ""},
        BindingCase{"noncontig_list", {"0-7"}, "0,2,4-5,7", 1, 0, "0,2,4-5,7", "bind 0"},
        // 5 cores and 2 ranks: 2 each there, so that rank 1 gets 4-5 and core 7 idles.
        BindingCase{"noncontig_pairs_r1", {"0-7"}, "0,2,4-5,7", 2, 1, "5,7", "bind 0"},
        BindingCase{"flat_hbm_r0", kFlatHbm, "0-3", 2, 0, "0-1", "prefer 2"},
        BindingCase{"flat_hbm_r1", kFlatHbm, "0-3", 2, 1, "2-3", "prefer 3"},
        BindingCase{"one_empty_node_normal", {"0-1", "2-3", ""}, "0-3", 2, 1, "2-3", "bind 1"},
        BindingCase{"fake_numa_r0", kFake, "0-3", 2, 0, "0-1", "bind 0-1"},
        BindingCase{"fake_numa_r1", kFake, "0-3", 2, 1, "2-3", "bind 2-3"},
        BindingCase{"no_numactl", {}, "0-7", 2, 1, "4-7", ""},
        BindingCase{"single_core_each", {"0-3"}, "0-3", 4, 2, "2", "bind 0"},
        // Not in the reference's table: HBM beside fake nodes of one socket, and nodes of which
        // only some are doubled.
        BindingCase{"half_fake", {"0-1", "0-1", "2-3"}, "0-3", 2, 1, "2-3", "bind 2"},
        BindingCase{"flat_hbm_first", {"", "0-1", "", "2-3"}, "0-3", 2, 1, "2-3", "prefer 2"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(BindingTest, TooManyRanks) {
  EXPECT_EQ(DivideCores({0, 1}, 4).status().message(),
            "--bind_cores_to_rank: 4 ranks cannot share 2 cores");
}

TEST(ChooseMemoryTest, NoRankIsBoundToANodeWithoutMemory) {
  std::vector<NumaNode> nodes = MakeNodes({"0-1", "2-3"});
  nodes[1].memory_bytes = 0;
  EXPECT_EQ(ShowMemoryPolicy(ChooseMemory(nodes, {2})), "");
  EXPECT_EQ(ShowMemoryPolicy(ChooseMemory(nodes, {0})), "bind 0");
  EXPECT_EQ(ShowMemoryPolicy(ChooseMemory(nodes, {})), "");
}

}  // namespace
}  // namespace ds::cli
