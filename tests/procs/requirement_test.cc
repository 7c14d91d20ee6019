// DSRUN_REQUIRE makes a skip a failure: seen from outside, by a test binary that is run again.

#include "tests/support/requirement.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

TEST(RequirementTest, DISABLED_NeedsPeers) { SkipWithout("peers", "there are none"); }

ProgramResult RunWith(const std::string& required) {
  return RunProgram({std::filesystem::read_symlink("/proc/self/exe").string(),
                     "--gtest_also_run_disabled_tests", "--gtest_filter=*NeedsPeers"},
                    {.environment = {"DSRUN_REQUIRE=" + required}});
}

TEST(RequirementTest, WhatIsNotRequiredIsSkipped) {
  for (const char* required : {"", "namespaces", "namespaces,fuse"}) {
    const ProgramResult result = RunWith(required);
    EXPECT_EQ(result.status, 0) << result.out;
    EXPECT_THAT(result.out, HasSubstr("1 test, listed below"));
    EXPECT_THAT(result.out, HasSubstr("there are none"));
  }
}

TEST(RequirementTest, WhatIsRequiredFails) {
  for (const char* required : {"peers", "namespaces,fuse,peers"}) {
    const ProgramResult result = RunWith(required);
    EXPECT_EQ(result.status, 1) << result.out;
    EXPECT_THAT(result.out, HasSubstr("DSRUN_REQUIRE names peers, but: there are none"));
  }
}

TEST(RequirementTest, AWordThatRequiresNothingFails) {
  const ProgramResult result = RunWith("pears");
  EXPECT_EQ(result.status, 1) << result.out;
  EXPECT_THAT(result.out, HasSubstr("there is no 'pears'"));
}

}  // namespace
}  // namespace ds::testing
