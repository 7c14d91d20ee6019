// scripts/setup.sh, which scripts/run.sh calls every time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::IsEmpty;

TEST(SetupTest, SaysNothingWhereAllIsBuilt) {
  const std::vector<std::string> setup{DS_SOURCE_DIR "/scripts/setup.sh", "--programs"};
  const ProgramOptions options{.environment = {"PIP_NO_INDEX=1", "BUILD_DIR=" DS_BUILD_DIR}};
  const auto first = RunProgram(setup, options);  // builds what somebody has just edited
  ASSERT_EQ(first.status, 0) << first.err;
  const auto again = RunProgram(setup, options);
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.out + again.err, IsEmpty());
}

}  // namespace
}  // namespace ds::testing
