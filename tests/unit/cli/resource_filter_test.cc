#include "cli/launch/resource_filter.h"

#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using Pool = std::vector<HostSlots>;

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
