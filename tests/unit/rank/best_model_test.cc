#include "runtime/rank/best_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint_format/catalog.h"
#include "tests/support/program.h"

namespace ds::rank {
namespace {

using ::testing::HasSubstr;

TEST(BestModelTest, ACheckpointIsNamedWhereThereIsOne) {
  const testing::TemporaryFolder folder;
  const engine::BestEvaluation::Best best{.step = 3, .loss = 1.5};
  EXPECT_THAT(DescribeBest(best, folder.path()), HasSubstr("it has no checkpoint"));
  std::filesystem::create_directory(checkpoint::DirectoryOfStep(folder.path(), 3));
  EXPECT_THAT(DescribeBest(best, folder.path()), HasSubstr("its checkpoint is step-3"));
}

// A run may have evaluated before it was asked to keep the best.
TEST(BestModelTest, RefusesARunWithoutItsBestCheckpoint) {
  const testing::TemporaryFolder folder;
  engine::BestEvaluation best;
  EXPECT_TRUE(CheckBestIsRetained(best, folder.path()).ok()) << "nothing was evaluated";
  best.Add(4, 1.5);
  EXPECT_THAT(CheckBestIsRetained(best, folder.path()).message(),
              HasSubstr("--load_best_model_at_end: the best evaluation so far is of step 4"));
  std::filesystem::create_directory(checkpoint::DirectoryOfStep(folder.path(), 4));
  EXPECT_TRUE(CheckBestIsRetained(best, folder.path()).ok());
}

}  // namespace
}  // namespace ds::rank
