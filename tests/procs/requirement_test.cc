// DSRUN_REQUIRE makes a skip a failure: seen from outside, by a test binary that is run again.

#include "tests/support/requirement.h"

#include <gmock/gmock.h>
#include <sched.h>

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

TEST(RequirementTest, SkipsWithoutRequirement) {
  for (const char* required : {"", "namespaces", "namespaces,fuse"}) {
    const ProgramResult result = RunWith(required);
    EXPECT_EQ(result.status, 0) << result.out;
    EXPECT_THAT(result.out, HasSubstr("1 test, listed below"));
    EXPECT_THAT(result.out, HasSubstr("there are none"));
  }
}

TEST(RequirementTest, FailsWithRequirement) {
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

// A test in Python, for a python without packages.
ProgramResult RunPythonTestWith(const std::string& required) {
  return RunProgram({"python3", DS_SOURCE_DIR "/tests/python/guides_test.py", "--bin", "/none",
                     "--python", "/bin/false", "llama_lora"},
                    {.environment = {"DSRUN_REQUIRE=" + required}});
}

TEST(RequirementTest, TestsInPythonSkipWithoutPackages) {
  const ProgramResult result = RunPythonTestWith("fuse");
  EXPECT_EQ(result.status, 77) << result.err;
  EXPECT_EQ(result.out, "SKIPPED llama_lora: /bin/false has no peft, transformers\n");
}

TEST(RequirementTest, TestsInPythonFailWithRequirement) {
  const ProgramResult result = RunPythonTestWith("fuse,peers");
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_EQ(result.out,
            "FAILED llama_lora: DSRUN_REQUIRE names peers, but: /bin/false has no peft, "
            "transformers\n");
}

// Runs .ci/requirements on a machine whose processors are as `lscpu` prints them.
ProgramResult RequirementsWhere(const std::string& lscpu) {
  const TemporaryFolder folder;
  EXPECT_TRUE(
      WriteFileAtomically(folder.path() / "lscpu", "#!/bin/sh\n" + lscpu + "\n", 0755).ok());
  return RunProgram(
      {DS_SOURCE_DIR "/.ci/requirements"},
      {.environment = {"PATH=" + folder.path().string() + ":" + std::getenv("PATH")}});
}

TEST(RequirementTest, CountsTheCoresThatItMayRunOn) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  // Every processor is a core of its own.
  const ProgramResult own =
      RequirementsWhere("for cpu in $(seq 0 1023); do echo $cpu,$cpu,0; done");
  EXPECT_EQ(own.status, 0) << own.err;
  EXPECT_EQ(own.out.find("two_cores") != std::string::npos, CPU_COUNT(&allowed) >= 2) << own.out;
  // All are threads of one, and the machine has another that is not for us.
  const ProgramResult one =
      RequirementsWhere("for cpu in $(seq 0 1023); do echo $cpu,0,0; done; echo 5000,1,0");
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, Not(HasSubstr("two_cores")));
}

}  // namespace
}  // namespace ds::testing
