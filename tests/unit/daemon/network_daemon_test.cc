#include "daemon/network/network_daemon.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>

#include "tests/support/program.h"

namespace ds::daemon {
namespace {

class KeepFreshTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(file_.valid());
    MakeOld();
  }
  void MakeOld() const {
    const timespec long_ago[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    ASSERT_EQ(::futimens(file_.get(), long_ago), 0);
  }
  bool looks_used() const {
    struct stat now {};
    EXPECT_EQ(::fstat(file_.get(), &now), 0);
    return now.st_mtim.tv_sec > 1'000'000'000;
  }

  const ds::testing::TemporaryFolder folder_;
  const std::string path_ = (folder_.path() / "dsrund").string();
  const UniqueFd file_{::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)};
  const std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
};

TEST_F(KeepFreshTest, AFileLooksUsedFromTheBeginning) {
  KeepFresh(loop_.get(), path_, std::chrono::hours(24));
  EXPECT_TRUE(looks_used());
}

TEST_F(KeepFreshTest, AFileLooksUsedAgainAndAgain) {
  int times_seen = 0;
  KeepFresh(loop_.get(), path_, std::chrono::milliseconds(1));
  const std::function<void()> look = [&] {
    if (looks_used()) {
      MakeOld();
      if (++times_seen == 3) return loop_->Quit();
    }
    loop_->CallAt(std::chrono::steady_clock::now(), look);
  };
  look();
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_EQ(times_seen, 3);
}

}  // namespace
}  // namespace ds::daemon
