// Whose a control group is, and which ones a daemon may end. A plain folder does for the hierarchy.

#include "runtime/process/owned_cgroup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/base/owner_mark.h"
#include "tests/support/dead_owner.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds {
namespace {

namespace fs = std::filesystem;
using ds::testing::MarkOfTheDead;

constexpr char kOwner[] = "user.dsrun.owner";

class OwnedCgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::setxattr(parent().c_str(), "user.dsrun.probe", "", 0, 0) != 0) {
      ds::testing::SkipWithout("attributes",
                               "the file system of temporary folders takes no extended attributes");
    }
  }
  void MakeGroup(const std::string& name, const std::string& mark) const {
    fs::create_directories(parent() / name);
    const std::string path = (parent() / name).string();
    ASSERT_EQ(::setxattr(path.c_str(), kOwner, mark.data(), mark.size(), 0), 0);
  }
  bool Exists(const std::string& name) const { return fs::exists(parent() / name); }
  const fs::path& parent() const { return folder_.path(); }

  ds::testing::TemporaryFolder folder_;
};

TEST_F(OwnedCgroupTest, IsMadeMarkedAndRemoved) {
  EXPECT_FALSE(OwnedCgroup::Create(parent() / "none", "job").ok());
  EXPECT_FALSE(OwnedCgroup::Create("", "job").ok());
  auto group = OwnedCgroup::Create(parent(), "job");
  ASSERT_TRUE(group.ok()) << group.status().message();
  std::array<char, 256> mark{};
  const ssize_t size = ::getxattr((*group)->path().c_str(), kOwner, mark.data(), mark.size());
  ASSERT_GT(size, 0);
  EXPECT_EQ(std::string(mark.data(), static_cast<std::size_t>(size)), MakeOwnMark());
  (*group)->KillAll();  // nobody
  EXPECT_FALSE(OwnedCgroup::Create(parent(), "job").ok()) << "one of that name is in use";
  group->reset();
  EXPECT_FALSE(Exists("dsrun-job"));
}

TEST_F(OwnedCgroupTest, OnlyThoseOfDeadDaemonsAreRemoved) {
  MakeGroup("dsrun-left", MarkOfTheDead());
  MakeGroup("of-another-name", MarkOfTheDead());
  MakeGroup("dsrun-alive", MakeOwnMark());
  MakeGroup("dsrun-of-another-boot", "0" + MarkOfTheDead());
  fs::create_directories(parent() / "dsrun-my-experiment-limits");
  fs::create_directory_symlink(parent() / "dsrun-left", parent() / "link");
  const auto mine = OwnedCgroup::Create(parent(), "mine");
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  EXPECT_FALSE(Exists("dsrun-left"));
  EXPECT_FALSE(Exists("of-another-name")) << "a name proves nothing in either direction";
  EXPECT_TRUE(Exists("dsrun-alive"));
  EXPECT_TRUE(Exists("dsrun-of-another-boot"));
  EXPECT_TRUE(Exists("dsrun-my-experiment-limits"));
}

// It may have been stopped, or have died, in the middle of its work.
TEST_F(OwnedCgroupTest, OneThatAnotherIsAboutToRemoveIsRemovedAllTheSame) {
  MakeGroup("dsrun-left", MarkOfTheDead());
  const int other = ::open((parent() / "dsrun-left").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other, LOCK_SH | LOCK_NB), 0);
  OwnedCgroup::RemoveAbandoned(parent());
  EXPECT_FALSE(Exists("dsrun-left"));
  ::close(other);
}

// Its owner is a process of another pid namespace: there is none of that number here.
TEST_F(OwnedCgroupTest, KeepsAHeldGroupDespiteItsMark) {
  const auto group = OwnedCgroup::Create(parent(), "held");
  ASSERT_TRUE(group.ok()) << group.status().message();
  MakeGroup("dsrun-held", MarkOfTheDead());
  OwnedCgroup::RemoveAbandoned(parent());
  EXPECT_TRUE(Exists("dsrun-held"));
}

// A process of the group, which nobody reaps before it ends with the object.
class Sleeper {
 public:
  Sleeper() {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  std::string line() const { return std::to_string(pid_) + "\n"; }
  void AwaitEnd() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  bool ended() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG);
    return info.si_pid == pid_;
  }

 private:
  const pid_t pid_ = ::fork();
};

// A kernel without cgroup.kill, and a process whose child is there when it has been killed.
TEST_F(OwnedCgroupTest, ProcessesForkedDuringAKillDoNotEscape) {
  const auto group = OwnedCgroup::Create(parent(), "job");
  ASSERT_TRUE(group.ok()) << group.status().message();
  const std::string list = ((*group)->path() / "cgroup.procs").string();
  ASSERT_EQ(::mkfifo(list.c_str(), 0600), 0);  // each time that it is read may find something else
  std::ofstream((*group)->path() / "cgroup.freeze");
  const Sleeper mother, child;
  const auto show = [&list](const std::string& text) {
    const int file = ::open(list.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(file);
  };
  std::thread kernel([&] {
    show(mother.line());
    mother.AwaitEnd();
    show(child.line());
    child.AwaitEnd();
    show("");
  });
  (*group)->KillAll();
  EXPECT_TRUE(child.ended());
  // Where it reads once only, the others are let go.
  ::kill(std::stoi(child.line()), SIGKILL);
  const int reader = ::open(list.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  kernel.join();
  ::close(reader);
  std::ifstream frozen((*group)->path() / "cgroup.freeze");
  EXPECT_EQ(frozen.get(), '1');
  frozen.close();
  for (const char* file : {"cgroup.procs", "cgroup.freeze"}) fs::remove((*group)->path() / file);
}

}  // namespace
}  // namespace ds
