#include "cli/job/disk_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;

const LogFile::Appended kFull{.status = ResourceExhaustedError("log: full"), .is_full = true};

class DiskWaitTest : public ::testing::Test {
 protected:
  DiskWaitTest() {
    wait_.Listen([this](const std::string& text) { notices_.push_back(text); });
  }

  DiskWait wait_{std::chrono::milliseconds(1)};
  std::vector<std::string> notices_;
};

TEST_F(DiskWaitTest, AFullDiskIsTriedUntilItHasSpaceAndToldOnce) {
  int tries = 0;
  EXPECT_TRUE(wait_.Repeat([&] { return ++tries < 4 ? kFull : LogFile::Appended(); }).ok());
  EXPECT_EQ(tries, 4);
  EXPECT_THAT(notices_, ElementsAre("log: full; the job waits until there is space again",
                                    "the disk of the run directory has space again; the job "
                                    "continues"));
}

TEST_F(DiskWaitTest, OtherErrorsAndSuccessAreNotWaitedFor) {
  EXPECT_TRUE(wait_.Repeat([] { return LogFile::Appended(); }).ok());
  EXPECT_EQ(wait_.Repeat([] { return LogFile::Appended{InternalError("io")}; }).message(), "io");
  EXPECT_THAT(notices_, ElementsAre());
}

TEST_F(DiskWaitTest, AnErrorOfAnotherKindEndsTheWait) {
  int tries = 0;
  const auto write = [&] { return ++tries < 3 ? kFull : LogFile::Appended{InternalError("io")}; };
  EXPECT_EQ(wait_.Repeat(write).message(), "io");
  EXPECT_THAT(notices_, ElementsAre(::testing::HasSubstr("waits")));
}

TEST_F(DiskWaitTest, GivingUpEndsTheWaitAndLaterOnes) {
  std::thread user;
  const Status status = wait_.Repeat([&] {
    if (!user.joinable()) user = std::thread([this] { wait_.GiveUp(); });
    return kFull;
  });
  user.join();
  EXPECT_EQ(status.message(), "log: full");
  EXPECT_EQ(wait_.Repeat([] { return kFull; }).message(), "log: full");
}

}  // namespace
}  // namespace ds::cli
