// DSRUN_REQUIRE makes a skip a failure: seen from outside, by a test binary that is run again.

#include "tests/support/requirement.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

// Two processors of one core, where the machine has another core that is not for us.
TEST(RequirementTest, CountsTheCoresThatItMayRunOn) {
  const TemporaryFolder folder;
  constexpr char kCores[] = R"sh(#!/bin/sh
for cpu in $(seq 0 4095); do echo $cpu,0,0; done
echo 5000,1,0
)sh";
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "lscpu", kCores, 0755).ok());
  const ProgramResult result =
      RunProgram({DS_SOURCE_DIR "/.ci/requirements"},
                 {.environment = {"PATH=" + folder.path().string() + ":" + std::getenv("PATH")}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, Not(HasSubstr("two_cores")));
}

}  // namespace
}  // namespace ds::testing
