#include "runtime/rank/step_report.h"

#include <gmock/gmock.h>
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

TEST(DescribeForeignTest, NamesTheSampleAndARateThatWasSet) {
  checkpoint::Manifest manifest;
  EXPECT_EQ(DescribeForeign("c/step-2", manifest, /*position=*/8, /*has_schedule=*/true),
            "c/step-2, written by another program, has no position in the data: this run goes on "
            "with its sample 9, as 8 samples have been seen, of whatever data");
  manifest.written_by = {{"program", "dsrun python"}};
  manifest.state = {{"engine", {{"set_lr", 0.25}}}};
  EXPECT_THAT(DescribeForeign("c/step-2", manifest, /*position=*/8, /*has_schedule=*/true),
              ::testing::EndsWith("; the learning rate 0.25, which the program has set, stays for "
                                  "a step, and the schedule of ds_config follows"));
  EXPECT_THAT(DescribeForeign("c/step-2", manifest, /*position=*/8, /*has_schedule=*/false),
              ::testing::EndsWith("stays, as ds_config has no schedule"));
}

}  // namespace
}  // namespace ds::rank
