// scripts/setup.sh, which scripts/run.sh and the benchmarks call every time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SetupTest, IsSilentWhenAllIsBuilt) {
  const std::vector<std::string> setup{DS_SOURCE_DIR "/scripts/setup.sh", "--programs"};
  const ProgramOptions options{.environment = {"PIP_NO_INDEX=1", "BUILD_DIR=" DS_BUILD_DIR}};
  const auto first = RunProgram(setup, options);  // builds what somebody has just edited
  ASSERT_EQ(first.status, 0) << first.err;
  const auto again = RunProgram(setup, options);
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.out + again.err, IsEmpty());
}

TEST(SetupTest, ABenchmarkNamesAMissingProgram) {
  const auto result = RunProgram({DS_SOURCE_DIR "/scripts/bench/launch", "--dsrun",
                                  DS_BIN_DIR "/dsrun", "--rank", "/nonexistent"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("/nonexistent is not a program"));
}

TEST(SetupTest, ConfiguresANewFolderWithThePreset) {
  TemporaryFolder folder;
  const std::string build = folder.path() / "a build";
  const auto result = RunProgram({DS_SOURCE_DIR "/scripts/setup.sh", "--preset", "ci-asan",
                                  "--target", "help", "-DDS_ARROW=OFF"},
                                 {.environment = {"PIP_NO_INDEX=1", "BUILD_DIR=" + build}});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto cache = ReadFile(build + "/CMakeCache.txt");
  ASSERT_TRUE(cache.ok());
  for (const char* setting :
       {"\nDS_SANITIZE:STRING=address,undefined\n", "\nDS_TORCH:BOOL=OFF\n", "\nDS_UNITY:BOOL=ON\n",
        "\nDS_ARROW:BOOL=OFF\n", "\nCMAKE_GENERATOR:INTERNAL=Ninja\n"}) {
    EXPECT_THAT(*cache, HasSubstr(setting));
  }
}

}  // namespace
}  // namespace ds::testing
