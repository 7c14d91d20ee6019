// Under a memory control group stage 3 trains from a drive ten times the parameters that plain data
// parallelism does, with the memory that was planned: scripts/bench/offload_memory, small.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(OffloadMemory, TrainsTenTimesTheLimitOfAControlGroup) {
  // Beside the programs: the folder for temporary files may lie in memory.
  const TemporaryFolder drive(DS_BIN_DIR);
  const ProgramResult result = RunProgram(
      {DS_SOURCE_DIR "/scripts/bench/offload_memory", drive.path().string(), "--dsrun",
       DS_BIN_DIR "/dsrun", "--limit_mib", "256", "--ranks", "1", "--width", "512", "--vocabulary",
       "512", "--seq_len", "32", "--sub_group", "524288", "--times", "10"});
  if (result.out.find("limit: memory control group") == std::string::npos) {
    return SkipWithout("memory_groups", result.out + result.err);
  }
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex("stage 0, [0-9]+ layers, .* does not fit"));
  EXPECT_THAT(result.out,
              ContainsRegex("stage 3, .* MiB planned \\((9[5-9]|10[0-4])\\.[0-9] %\\)"));
  EXPECT_THAT(result.out, ContainsRegex("stage 3 from the drive trains 10\\.[0-9] times as many"));
}

}  // namespace
}  // namespace ds::testing
