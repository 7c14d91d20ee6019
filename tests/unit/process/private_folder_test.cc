#include "runtime/process/private_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "runtime/base/owner_mark.h"
#include "tests/support/dead_owner.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

class PrivateFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string base = "/tmp/folder-test-XXXXXX";
    ASSERT_NE(::mkdtemp(base.data()), nullptr);
    base_ = base;
    if (const char* set = std::getenv("XDG_RUNTIME_DIR"); set != nullptr) before_ = set;
    ::setenv("XDG_RUNTIME_DIR", base.c_str(), 1);
  }
  void TearDown() override {
    before_ ? ::setenv("XDG_RUNTIME_DIR", before_->c_str(), 1) : ::unsetenv("XDG_RUNTIME_DIR");
    fs::remove_all(base_);
  }

  // What `act` says in another process, which then waits to be killed.
  std::string InAnotherProcess(const std::function<std::string()>& act) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    other_ = ::fork();
    if (other_ == 0) {
      const std::string said = act() + "\n";
      static_cast<void>(!::write(pipe[1], said.data(), said.size()));
      while (true) ::pause();
    }
    const UniqueFd read(pipe[0]);
    ::close(pipe[1]);
    std::string said;
    for (char byte = 0; ::read(read.get(), &byte, 1) == 1 && byte != '\n';) said += byte;
    return said;
  }
  void KillOther() {
    ::kill(other_, SIGKILL);
    ::waitpid(other_, nullptr, 0);
  }

  fs::path base_;
  std::optional<std::string> before_;
  pid_t other_ = -1;
};

TEST_F(PrivateFolderTest, IsPrivateAndRemovedWithItsContents) {
  PrivateFolder folder = *PrivateFolder::Make();
  EXPECT_EQ(folder.path().parent_path(), base_);
  struct stat info {};
  ASSERT_EQ(::stat(folder.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  fs::create_directory(folder.path() / "inside");
  folder.Remove();
  EXPECT_TRUE(fs::is_empty(base_));
}

TEST_F(PrivateFolderTest, RemovesLeftoversOfAKilledProcessWithTheNextOne) {
  const fs::path others = InAnotherProcess([] {
    static PrivateFolder folder = *PrivateFolder::Make();
    fs::create_directories(folder.path() / "generation-1");
    return folder.path().string();
  });
  const PrivateFolder while_it_lives = *PrivateFolder::Make();
  EXPECT_TRUE(fs::exists(others / "generation-1"));
  KillOther();
  const PrivateFolder afterwards = *PrivateFolder::Make();
  EXPECT_FALSE(fs::exists(others));
  EXPECT_TRUE(fs::exists(while_it_lives.path()));
}

TEST_F(PrivateFolderTest, ALongRuntimeFolderIsPassedOver) {
  const std::string deep = base_.string() + "/" + std::string(80, 'd');
  fs::create_directory(deep);
  ::setenv("XDG_RUNTIME_DIR", deep.c_str(), 1);
  PrivateFolder folder = *PrivateFolder::Make();
  EXPECT_EQ(folder.path().parent_path(), "/tmp");
  folder.Remove();
}

TEST_F(PrivateFolderTest, OneThatIsJoinedOutlivesItsMaker) {
  const fs::path others = InAnotherProcess([] {
    static PrivateFolder folder = *PrivateFolder::Make();
    return folder.path().string();
  });
  {
    const PrivateFolder joined = *PrivateFolder::Join(others);
    KillOther();
    const PrivateFolder next = *PrivateFolder::Make();
    EXPECT_TRUE(fs::exists(others));
  }
  const PrivateFolder last = *PrivateFolder::Make();
  EXPECT_FALSE(fs::exists(others));
  EXPECT_EQ(PrivateFolder::Join(others).status().code(), StatusCode::kNotFound);
}

TEST_F(PrivateFolderTest, DoesNotJoinFoldersOpenToOthers) {
  const fs::path folder = base_ / "folder";
  EXPECT_EQ(PrivateFolder::Join(folder).status().code(), StatusCode::kNotFound);
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_TRUE(PrivateFolder::Join(folder).ok());
  fs::create_directory_symlink(folder, base_ / "link");
  EXPECT_FALSE(PrivateFolder::Join(base_ / "link").ok());
  ASSERT_EQ(::chmod(folder.c_str(), 0750), 0);
  EXPECT_EQ(PrivateFolder::Join(folder).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(PrivateFolderTest, AFolderWithoutAMarkIsTheUsers) {
  const fs::path results = base_ / "dsrun-job-results-2026";
  fs::create_directory(results);
  std::ofstream(results / "metrics.csv") << "a week";
  fs::create_directory(base_ / "dsrun-job-42");  // a --run_dir
  fs::create_directory(base_ / "dsrun-100000");  // a cache of daemons
  fs::create_directory_symlink("dsrun-100000", base_ / "dsrun-job-aaaaaa");
  const PrivateFolder folder = *PrivateFolder::Make();
  PrivateFolder::RemoveAbandoned();
  EXPECT_TRUE(fs::exists(results / "metrics.csv"));
  EXPECT_TRUE(fs::exists(base_ / "dsrun-job-42"));
  EXPECT_TRUE(fs::exists(base_ / "dsrun-100000"));
  EXPECT_TRUE(fs::exists(base_ / "dsrun-job-aaaaaa"));
}

// Whether a folder with this mark, which nobody holds, is still there after a Make.
class MarkedFolderTest : public PrivateFolderTest {
 protected:
  bool Survives(const std::string& mark) {
    const fs::path marked = base_ / "dsrun-job-marked";
    fs::create_directory(marked);
    const UniqueFd folder(::open(marked.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(LeaveMark(folder.get(), MarkLocation::kFile, mark).ok());
    std::ofstream(marked / "file") << "content";
    PrivateFolder::Make()->Remove();
    const bool survives = fs::exists(marked / "file");
    fs::remove_all(marked);
    return survives;
  }
};

TEST_F(MarkedFolderTest, OnlyTheEndOfItsOwnerAllowsItsRemoval) {
  const std::string dead = ds::testing::MarkOfTheDead();
  EXPECT_FALSE(Survives(dead));
  EXPECT_TRUE(Survives(MakeOwnMark()));
  EXPECT_TRUE(Survives("0" + dead)) << "of another boot, perhaps of another machine";
  EXPECT_TRUE(Survives(""));
  EXPECT_TRUE(Survives("my notes"));
}

// A user keeps what a job left that was killed.
TEST_F(PrivateFolderTest, TheCopyOfAnAbandonedFolderIsTheUsers) {
  const fs::path others = InAnotherProcess([] {
    static PrivateFolder folder = *PrivateFolder::Make();
    std::ofstream(folder.path() / "file") << "content";
    return folder.path().string();
  });
  KillOther();
  const fs::path copy = base_ / "dsrun-job-copy";
  fs::copy(others, copy, fs::copy_options::recursive);
  PrivateFolder::RemoveAbandoned();
  EXPECT_FALSE(fs::exists(others));
  EXPECT_TRUE(fs::exists(copy / "file"));
}

TEST_F(PrivateFolderTest, ALinkThatTookItsPlaceIsNotFollowed) {
  PrivateFolder made = *PrivateFolder::Make();
  const fs::path moved = base_ / "moved";
  fs::rename(made.path(), moved);
  fs::create_directory_symlink(moved, made.path());
  std::ofstream(moved / "file") << "content";
  made.Remove();
  EXPECT_TRUE(fs::exists(moved / "file"));
}

TEST_F(PrivateFolderTest, AJoiningProcessRemovesItOnlyWhenUnused) {
  PrivateFolder made = *PrivateFolder::Make();
  const PrivateFolder joined = *PrivateFolder::Join(made.path());
  std::ofstream(made.path() / "file") << "content";
  joined.RemoveIfUnused();
  EXPECT_TRUE(fs::exists(made.path() / "file"));
  fs::remove(made.path() / "file");
  joined.RemoveIfUnused();
  EXPECT_TRUE(fs::is_empty(base_));
}

}  // namespace
}  // namespace ds
