#include "runtime/checkpoint/shared_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/checkpoint_format/folder_mark.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

TEST(SharedFolderTest, AFolderThatAllKnowIsLeftAsItWas) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "run" / "checkpoints";
  const std::string mark = checkpoint::MakeFolderMark(path).value();
  RunRanks(3, [&](comm::Communicator& world) {
    EXPECT_TRUE(checkpoint::CheckSharedFolder(path, mark, world).ok());
  });
  EXPECT_TRUE(std::filesystem::is_empty(path));
}

TEST(SharedFolderTest, ARankThatSeesAnotherFolderIsNamedToAll) {
  const TemporaryFolder folder;
  const std::string mark = checkpoint::MakeFolderMark(folder.path() / "here").value();
  RunRanks(3, [&](comm::Communicator& world) {
    const auto path = folder.path() / (world.rank() == 2 ? "there" : "here");
    const Status status = checkpoint::CheckSharedFolder(path, mark, world);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("rank 2: "));
    EXPECT_THAT(status.message(), HasSubstr("differs from the folder on the host"));
  });
}

}  // namespace
}  // namespace ds::testing
