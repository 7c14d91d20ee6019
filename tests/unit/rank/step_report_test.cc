#include "runtime/rank/step_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/format/catalog.h"
#include "tests/support/program.h"

namespace ds::rank {
namespace {

TEST(DescribeBestTest, ACheckpointIsNamedWhereThereIsOne) {
  const testing::TemporaryFolder folder;
  const engine::BestEvaluation::Best best{.step = 3, .loss = 1.5};
  EXPECT_THAT(DescribeBest(best, folder.path()), ::testing::HasSubstr("it has no checkpoint"));
  std::filesystem::create_directory(checkpoint::DirectoryOfStep(folder.path(), 3));
  EXPECT_THAT(DescribeBest(best, folder.path()), ::testing::HasSubstr("its checkpoint is step-3"));
}

}  // namespace
}  // namespace ds::rank
