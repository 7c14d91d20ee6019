#include "cli/job/log_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

class LogFileTest : public ::testing::Test {
 protected:
  std::string Content(int age) const {
    const auto text = ReadFile(NameRotated(path_, age));
    return text.ok() ? *text : "none";
  }

  const ds::testing::TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "log";
};

TEST_F(LogFileTest, AppendsToWhatIsThere) {
  for (const char* text : {"", "one\n", "two\n"}) {
    LogFile log(path_);
    EXPECT_TRUE(log.Append(text).status.ok());
  }
  EXPECT_EQ(Content(0), "one\ntwo\n");
}

TEST_F(LogFileTest, ALogThatWouldExceedItsLimitIsRotated) {
  LogFile log(path_, {.max_bytes = 8, .max_files = 3});
  for (const char* text : {"1111", "2222", "3333", "44444444", "5"}) {
    EXPECT_TRUE(log.Append(text).status.ok()) << text;
  }
  EXPECT_EQ(Content(0), "5");
  EXPECT_EQ(Content(1), "44444444");
  EXPECT_EQ(Content(2), "3333");
  EXPECT_EQ(Content(3), "none") << "the oldest goes";
}

TEST_F(LogFileTest, ATextLargerThanAFileMayBeIsDivided) {
  LogFile log(path_, {.max_bytes = 4, .max_files = 9});
  for (const char* text : {"1", "2222333344", "55"}) {
    EXPECT_TRUE(log.Append(text).status.ok()) << text;
  }
  std::string all;
  for (int age = 4; age >= 0; --age) all += Content(age) + " ";
  EXPECT_EQ(all, "none 1 2222 3333 4455 ");
}

TEST_F(LogFileTest, ARestartedProcessKeepsToTheLimit) {
  for (const char* text : {"1111", "2222", "3333"}) {
    LogFile log(path_, {.max_bytes = 8, .max_files = 2});
    EXPECT_TRUE(log.Append(text).status.ok());
  }
  EXPECT_EQ(Content(0), "3333");
  EXPECT_EQ(Content(1), "11112222");
}

TEST_F(LogFileTest, ASingleFileBeginsAnew) {
  LogFile log(path_, {.max_bytes = 8, .max_files = 1});
  for (const char* text : {"1111", "2222", "3333"}) EXPECT_TRUE(log.Append(text).status.ok());
  EXPECT_EQ(Content(0), "3333");
  EXPECT_EQ(Content(1), "none");
}

TEST_F(LogFileTest, AFullDiskIsTold) {
  std::filesystem::create_symlink("/dev/full", path_);
  LogFile log(path_);
  const LogFile::Appended appended = log.Append("x");
  EXPECT_TRUE(appended.is_full);
  EXPECT_EQ(appended.status.message(), path_.string() + ": No space left on device");
}

// The kernel takes a part of the text, then no more.
TEST_F(LogFileTest, AFailedAppendLeavesNoPart) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{6, before.rlim_max};
  LogFile log(path_);
  ASSERT_TRUE(log.Append("1111").status.ok());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const LogFile::Appended appended = log.Append("2222");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(appended.status.ok());
  EXPECT_FALSE(appended.is_full) << "it is as large as it may be, and stays so";
  EXPECT_EQ(Content(0), "1111");
  EXPECT_TRUE(log.Append("2222").status.ok());
  EXPECT_EQ(Content(0), "11112222");
}

}  // namespace
}  // namespace ds::cli
