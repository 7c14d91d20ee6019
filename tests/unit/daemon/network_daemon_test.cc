#include "daemon/network/network_daemon.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>

#include "tests/support/program.h"

namespace ds::daemon {
namespace {

TEST(KeepFreshTest, AFileLooksUsedAgainAndAgain) {
  const ds::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "dsrund").string();
  const UniqueFd file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  const timespec long_ago[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  const std::unique_ptr<EventLoop> loop = std::move(EventLoop::Create()).value();
  int times_seen = 0;
  ASSERT_EQ(::futimens(file.get(), long_ago), 0);
  KeepFresh(loop.get(), path, std::chrono::milliseconds(1));
  const std::function<void()> look = [&] {
    struct stat now {};
    ASSERT_EQ(::fstat(file.get(), &now), 0);
    if (now.st_mtim.tv_sec > long_ago[0].tv_sec) {
      ASSERT_EQ(::futimens(file.get(), long_ago), 0);
      if (++times_seen == 3) return loop->Quit();
    }
    loop->CallAt(std::chrono::steady_clock::now(), look);
  };
  look();
  ASSERT_TRUE(loop->Run().ok());
  EXPECT_EQ(times_seen, 3);
}

}  // namespace
}  // namespace ds::daemon
