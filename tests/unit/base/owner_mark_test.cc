// Who made a folder, and whether that process has ended.

#include "runtime/base/owner_mark.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/unique_fd.h"
#include "tests/support/dead_owner.h"

namespace ds {
namespace {

namespace fs = std::filesystem;
using ds::testing::Dead;
using ds::testing::MakeDead;
using ds::testing::MarkOfTheDead;

TEST(OwnerMarkTest, ALivingOwnerIsNotGone) {
  EXPECT_NE(MakeOwnMark(), "");
  EXPECT_FALSE(IsOwnerGone(MakeOwnMark()));
}

TEST(OwnerMarkTest, ADeadOneIs) { EXPECT_TRUE(IsOwnerGone(MarkOfTheDead())); }

TEST(OwnerMarkTest, SoIsAZombie) {
  const Dead zombie = MakeDead();
  EXPECT_TRUE(IsOwnerGone(zombie.mark));
  ::waitpid(zombie.pid, nullptr, 0);
}

TEST(OwnerMarkTest, APidIsUsedAgainByAProcessWithAnotherStart) {
  const std::string own = MakeOwnMark();
  const std::size_t start = own.rfind(' ') + 1;
  const std::string before = std::to_string(std::stoull(own.substr(start)) - 1);
  EXPECT_TRUE(IsOwnerGone(own.substr(0, start) + before));
}

TEST(OwnerMarkTest, NothingElseProvesAnEnd) {
  const std::string dead = MarkOfTheDead();
  const std::string another_boot = "0" + dead;
  for (const std::string& mark : {std::string(), std::string("1 2 3"), std::string("x"),
                                  another_boot, dead + " 1", dead.substr(0, dead.rfind(' '))}) {
    EXPECT_FALSE(IsOwnerGone(mark)) << mark;
  }
}

class MarkFileTest : public ::testing::Test {
 protected:
  MarkFileTest() {
    std::string path = "/tmp/mark-test-XXXXXX";
    path_ = ::mkdtemp(path.data());
    folder_.Reset(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  ~MarkFileTest() override { fs::remove_all(path_); }
  std::string Read() const { return ReadMark(folder_.get(), MarkLocation::kFile); }

  fs::path path_;
  UniqueFd folder_;
};

TEST_F(MarkFileTest, IsReadAsItWasLeft) {
  EXPECT_EQ(Read(), "");
  EXPECT_TRUE(LeaveMark(folder_.get(), MarkLocation::kFile, MakeOwnMark()).ok());
  EXPECT_EQ(Read(), MakeOwnMark());
  EXPECT_EQ(LeaveMark(folder_.get(), MarkLocation::kFile, "another").code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(Read(), MakeOwnMark());
}

TEST_F(MarkFileTest, OfAnotherUserIsNone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_TRUE(LeaveMark(folder_.get(), MarkLocation::kFile, MarkOfTheDead()).ok());
  EXPECT_TRUE(IsOwnerGone(Read()));
  ASSERT_EQ(::chown((path_ / kOwnerFile).c_str(), 65534, 65534), 0);
  EXPECT_EQ(Read(), "");
}

TEST_F(MarkFileTest, IsNoneInACopyOfTheFolder) {
  ASSERT_TRUE(LeaveMark(folder_.get(), MarkLocation::kFile, MarkOfTheDead()).ok());
  fs::create_directory(path_ / "copy");
  fs::copy_file(path_ / kOwnerFile, path_ / "copy" / kOwnerFile);
  const UniqueFd copy(::open((path_ / "copy").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(ReadMark(copy.get(), MarkLocation::kFile), "");
  EXPECT_FALSE(LockAbandoned(copy.get(), MarkLocation::kFile, LOCK_EX));
  const std::string moved = path_.string() + "-moved";
  fs::rename(path_, moved);
  path_ = moved;
  EXPECT_TRUE(IsOwnerGone(Read()));
  std::ofstream(path_ / kOwnerFile) << MarkOfTheDead() << "\n";
  EXPECT_EQ(Read(), "") << "it tells no folder";
}

TEST_F(MarkFileTest, IsARegularFile) {
  ASSERT_EQ(::mkfifo((path_ / kOwnerFile).c_str(), 0600), 0);
  EXPECT_EQ(Read(), "") << "and nobody waits for a writer";
  fs::remove(path_ / kOwnerFile);
  ASSERT_TRUE(LeaveMark(folder_.get(), MarkLocation::kFile, MarkOfTheDead()).ok());
  fs::rename(path_ / kOwnerFile, path_ / "elsewhere");
  fs::create_symlink("elsewhere", path_ / kOwnerFile);
  EXPECT_EQ(Read(), "");
}

}  // namespace
}  // namespace ds
