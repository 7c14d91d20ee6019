#include "cli/launch/resource_filter.h"

#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using Pool = std::vector<HostSlots>;

Pool Workers() {
  return {{.host = "worker-0", .slots = {0, 1, 2, 3}}, {.host = "worker-1", .slots = {0, 1, 2, 3}}};
}

std::string Show(const Pool& pool) {
  std::string text;
  for (const HostSlots& host : pool) {
    text += (text.empty() ? "" : " ") + host.host + "=";
    for (std::size_t i = 0; i < host.slots.size(); ++i) {
      text += (i == 0 ? "" : ",") + std::to_string(host.slots[i]);
    }
  }
  return text;
}

// The chosen slots, or the error.
std::string Selected(const Pool& pool, const ResourceRequest& request) {
  const auto selected = SelectSlots(pool, request);
  return selected.ok() ? Show(*selected) : selected.status().message();
}

struct FilterCase {
  std::string filter;
  std::string expected;
};

TEST(ResourceFilterTest, Include) {
  const std::vector<FilterCase> cases = {
      {"worker-0", "worker-0=0,1,2,3"},
      {"worker-0@worker-1:0,2", "worker-0=0,1,2,3 worker-1=0,2"},
      {"worker-1:0,2", "worker-1=0,2"},
      {"worker-0:2,0,2", "worker-0=0,2"},
      {"worker-0:1@worker-0:0,1", "worker-0=0,1"},
      {"worker-0@worker-0:1", "worker-0=1"},
      {"worker-0:1@worker-0", "worker-0=1"},
      {"worker-1:1@worker-0:0", "worker-0=0 worker-1=1"},
      {"worker-0:0-3", "worker-0=0,1,2,3"},
      {"worker-0:1-2,3", "worker-0=1,2,3"},
      {"worker-0:2-2", "worker-0=2"},
      {"worker-1:7", "--include worker-1:7: host 'worker-1' has no slot 7 (its slots: 0-3)"},
      {"worker-1:2-9", "--include worker-1:2-9: host 'worker-1' has no slot 4 (its slots: 0-3)"},
      {"worker-1:3-2", "--include worker-1:3-2: '3-2' ends before it starts"},
      {"jeff:0", "--include jeff:0: no host 'jeff' among the hosts"},
      {"worker-2",
       "--include worker-2: no host 'worker-2' among the hosts; did you mean 'worker-0'?"},
      {"worker-0:", "--include worker-0:: '' is not a slot number"},
      {"worker-0:,", "--include worker-0:,: '' is not a slot number"},
      {"worker-0:0,", "--include worker-0:0,: '' is not a slot number"},
      {"worker-0:a", "--include worker-0:a: 'a' is not a slot number"},
      {"worker-0: 1", "--include worker-0: 1: ' 1' is not a slot number"},
      {"worker-0:-1", "--include worker-0:-1: '-1' is not a slot number"},
      {"worker-0:+1", "--include worker-0:+1: '+1' is not a slot number"},
      {"worker-0:1_0", "--include worker-0:1_0: '1_0' is not a slot number"},
      {"worker-0:1.0", "--include worker-0:1.0: '1.0' is not a slot number"},
      {"worker-0:0x1", "--include worker-0:0x1: '0x1' is not a slot number"},
      {"worker-0:0:1",
       "--include worker-0:0:1: no host 'worker-0:0' among the hosts; did you mean "
       "'worker-0'?"},
      {"worker-0:99999999999",
       "--include worker-0:99999999999: '99999999999' is not a slot number"},
      {"@", "--include @: there is an empty host name in it"},
      {"worker-0@", "--include worker-0@: there is an empty host name in it"},
      {"@worker-0", "--include @worker-0: there is an empty host name in it"},
      {":0", "--include :0: no host '' among the hosts"},
  };
  for (const FilterCase& c : cases) {
    EXPECT_EQ(Selected(Workers(), {.include = c.filter}), c.expected) << c.filter;
  }
}

TEST(ResourceFilterTest, Exclude) {
  const std::vector<FilterCase> cases = {
      {"worker-1", "worker-0=0,1,2,3"},
      {"worker-0:0,1@worker-1:3", "worker-0=2,3 worker-1=0,1,2"},
      {"worker-0:0-3", "worker-1=0,1,2,3"},
      {"worker-1:4", "--exclude worker-1:4: host 'worker-1' has no slot 4 (its slots: 0-3)"},
      {"jeff", "--exclude jeff: no host 'jeff' among the hosts"},
      {"worker-0@worker-1", "--exclude worker-0@worker-1: no slot is left to run on"},
  };
  for (const FilterCase& c : cases) {
    EXPECT_EQ(Selected(Workers(), {.exclude = c.filter}), c.expected) << c.filter;
  }
}

TEST(ResourceFilterTest, CountsOfHostsAndSlots) {
  EXPECT_EQ(Selected(Workers(), {}), "worker-0=0,1,2,3 worker-1=0,1,2,3");
  EXPECT_EQ(Selected(Workers(), {.num_nodes = 1}), "worker-0=0,1,2,3");
  EXPECT_EQ(Selected(Workers(), {.num_nodes = 2, .num_gpus = 1}), "worker-0=0 worker-1=0");
  EXPECT_EQ(Selected(Workers(), {.num_nodes = 3}), "--num_nodes 3: there are only 2 hosts");
  EXPECT_EQ(Selected(Workers(), {.num_gpus = 5}), "--num_gpus 5: host 'worker-0' has 4 slots");
  EXPECT_EQ(Selected({{.host = "a", .slots = {0}}}, {.num_gpus = 2}),
            "--num_gpus 2: host 'a' has 1 slot");
  EXPECT_EQ(Selected({{.host = "a", .slots = {0}}}, {.num_nodes = 2}),
            "--num_nodes 2: there is 1 host");
}

TEST(ResourceFilterTest, RefusesContradictions) {
  EXPECT_EQ(Selected(Workers(), {.include = "worker-0", .exclude = "worker-1"}),
            "--include and --exclude exclude one another; give one of them");
  for (const ResourceRequest& request : {ResourceRequest{.include = "worker-0", .num_gpus = 1},
                                         ResourceRequest{.exclude = "worker-0", .num_nodes = 1}}) {
    EXPECT_EQ(Selected(Workers(), request),
              "--num_nodes and --num_gpus cannot be combined with --include or --exclude");
  }
}

TEST(ResourceFilterTest, HostsWithoutSlotsAreLeftOut) {
  EXPECT_EQ(Selected({{.host = "a"}, {.host = "b", .slots = {0}}}, {}), "b=0");
  EXPECT_EQ(Selected({{.host = "a"}}, {}), "no host has a slot to run on");
}

TEST(ResourceFilterTest, AnAddressOfIpV6IsAHostLikeAnyOther) {
  const Pool pool = {{.host = "fe80::1", .slots = {0, 1}}, {.host = "b", .slots = {0}}};
  EXPECT_EQ(Selected(pool, {.include = "fe80::1"}), "fe80::1=0,1");
  EXPECT_EQ(Selected(pool, {.include = "fe80::1:1"}), "fe80::1=1");
}

TEST(ResourceFilterTest, VisibleDevicesKeepTheirOrderAndNames) {
  const Pool pool = {{.host = "localhost", .slots = {3, 1}, .devices = {"3", "1"}}};
  const auto both = SelectSlots(pool, {.include = "localhost:1,3"});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(*both, pool);
  const auto first = SelectSlots(pool, {.num_gpus = 1});
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*first, (Pool{{.host = "localhost", .slots = {3}, .devices = {"3"}}}));
}

}  // namespace
}  // namespace ds::cli
