// For how many ranks `dsrun check` judges a ds_config.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

TEST(CheckCommand, TakesTheFewestRanksThatDegreesAllow) {
  const TemporaryFolder folder;
  const std::string config = (folder.path() / "cut.json").string();
  ASSERT_TRUE(WriteFileAtomically(config, R"({"train_micro_batch_size_per_gpu": 2,
      "tensor_parallel": {"autotp_size": 4}, "pipeline": {"stages": 2}})")
                  .ok());
  const ProgramResult checked = RunProgram({DS_BIN_DIR "/dsrun", "check", config});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("is good for 8 ranks: 2 samples a step"));
  const ProgramResult too_few =
      RunProgram({DS_BIN_DIR "/dsrun", "check", config, "--world_size", "4"});
  EXPECT_EQ(too_few.status, 2);
  EXPECT_THAT(too_few.err, HasSubstr("must divide the number of ranks, 4"));
}

}  // namespace
}  // namespace ds::testing
