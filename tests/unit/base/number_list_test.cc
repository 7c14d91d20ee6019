#include "runtime/base/number_list.h"

#include <gtest/gtest.h>

namespace ds {
namespace {

TEST(NumberListTest, ARangeIsWrittenByItsEnds) {
  EXPECT_EQ(FormatNumberList({}), "");
  EXPECT_EQ(FormatNumberList({7}), "7");
  EXPECT_EQ(FormatNumberList({0, 1}), "0-1");
  EXPECT_EQ(FormatNumberList({0, 2, 3, 4, 8}), "0,2-4,8");
}

}  // namespace
}  // namespace ds
