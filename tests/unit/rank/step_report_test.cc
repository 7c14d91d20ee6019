#include "runtime/rank/step_report.h"

#include <gtest/gtest.h>

namespace ds::rank {
namespace {

TEST(DescribeSkipTest, NamesFp16AndItsNewScale) {
  StepResult result{.skipped = true, .step = 7};
  result.non_finite = "the gradient of w (-Inf at element 0) is not finite";
  EXPECT_EQ(DescribeSkip(result),
            "step 7 is skipped: the gradient of w (-Inf at element 0) is not finite");
  result.overflow = "the loss scale changes from 4 to 2";
  EXPECT_EQ(DescribeSkip(result),
            "step 7 is skipped: gradients overflowed in fp16, and the loss scale changes from 4 to "
            "2: the gradient of w (-Inf at element 0) is not finite");
}

}  // namespace
}  // namespace ds::rank
