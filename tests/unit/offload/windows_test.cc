#include "runtime/offload/windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "tests/support/program.h"
#include "tests/support/scripted_file_system.h"

namespace ds::offload {
namespace {

using ds::testing::FileCall;
using ds::testing::kAskTheSystem;
using ds::testing::ScriptedFileSystem;
using ds::testing::TemporaryFolder;
using ::testing::HasSubstr;

constexpr std::int64_t kWindowPage = AlignedPool::kPage;

struct WindowSetting {
  explicit WindowSetting(ScriptedFileSystem::Script answers = nullptr)
      : system([this, answers](const FileCall& call) {
          if (call.kind == FileCall::Kind::kRead) ++reads;
          if (call.kind == FileCall::Kind::kWrite) ++writes;
          return answers ? answers(call) : kAskTheSystem;
        }) {
    StatusOr<std::unique_ptr<FileTier>> opened = FileTier::Open({.folders = {folder.path()},
                                                                 .queue = QueueChoice::kThreads,
                                                                 .most_writing_bytes = most_writing,
                                                                 .system = system});
    tier = *std::move(opened);
    reads = writes = 0;
  }

  std::unique_ptr<Windows> Make(std::int64_t bytes) const { return *Windows::Create(*tier, bytes); }

  TemporaryFolder folder;
  std::atomic<int> reads = 0, writes = 0;
  static constexpr std::int64_t most_writing = 4 * kWindowPage;
  ScriptedFileSystem system;
  std::unique_ptr<FileTier> tier;
};

void Put(Windows& windows, const ByteRange& range, int value, Access access = Access::kOverwrite) {
  const StatusOr<WindowUse> use = windows.Acquire(range, access);
  ASSERT_TRUE(use.ok()) << use.status().message();
  std::ranges::fill(use->bytes(), std::byte(value));
}

// The value of all of these bytes, or -1 where they differ.
int ValueOf(Windows& windows, const ByteRange& range) {
  const StatusOr<WindowUse> use = windows.Acquire(range, Access::kRead);
  if (!use.ok()) return -2;
  const std::byte first = use->bytes()[0];
  const bool alike =
      std::ranges::all_of(use->bytes(), [&](std::byte each) { return each == first; });
  return alike ? static_cast<int>(first) : -1;
}

TEST(Windows, ReturnChangedData) {
  const WindowSetting setting;
  const auto windows = setting.Make(10 * kWindowPage);
  EXPECT_TRUE(windows->are_zeros());
  Put(*windows, {0, 10 * kWindowPage}, 1);
  ASSERT_TRUE(windows->Release().ok());
  EXPECT_FALSE(windows->are_zeros());
  Put(*windows, {2 * kWindowPage, 3 * kWindowPage}, 2);
  ASSERT_TRUE(windows->Release().ok());
  EXPECT_EQ(ValueOf(*windows, {0, 2 * kWindowPage}), 1);
  EXPECT_EQ(ValueOf(*windows, {2 * kWindowPage, 3 * kWindowPage}), 2);
  EXPECT_EQ(ValueOf(*windows, {5 * kWindowPage, 5 * kWindowPage}), 1);
}

TEST(Windows, KeepDataNextToARangeThatSplitsPages) {
  const WindowSetting setting;
  const auto windows = setting.Make(3 * kWindowPage + 100);
  Put(*windows, {0, 3 * kWindowPage + 100}, 1);
  ASSERT_TRUE(windows->Release().ok());
  Put(*windows, {500, kWindowPage}, 2);
  ASSERT_TRUE(windows->Release().ok());
  Put(*windows, {3 * kWindowPage + 90, 10}, 3);
  ASSERT_TRUE(windows->Release().ok());
  EXPECT_EQ(ValueOf(*windows, {0, 500}), 1);
  EXPECT_EQ(ValueOf(*windows, {500, kWindowPage}), 2);
  EXPECT_EQ(ValueOf(*windows, {kWindowPage + 500, 2 * kWindowPage - 410}), 1);
  EXPECT_EQ(ValueOf(*windows, {3 * kWindowPage + 90, 10}), 3);
}

TEST(Windows, WriteOnlyChangedDataAndReadOnlyNeededData) {
  const WindowSetting setting;
  const auto windows = setting.Make(2 * kWindowPage);
  Put(*windows, {0, 2 * kWindowPage}, 1);
  ASSERT_TRUE(windows->Release().ok());
  ASSERT_TRUE(windows->Settle().ok());
  EXPECT_EQ(setting.reads, 0);
  EXPECT_EQ(setting.writes, 1);
  EXPECT_EQ(ValueOf(*windows, {0, 2 * kWindowPage}), 1);
  EXPECT_EQ(ValueOf(*windows, {kWindowPage, 100}), 1) << "a part of what is there";
  ASSERT_TRUE(windows->Release().ok());
  ASSERT_TRUE(windows->Settle().ok());
  EXPECT_EQ(setting.reads, 1);
  EXPECT_EQ(setting.writes, 1);
}

TEST(Windows, AreReadAhead) {
  const WindowSetting setting;
  const auto windows = setting.Make(4 * kWindowPage);
  Put(*windows, {0, 4 * kWindowPage}, 1);
  ASSERT_TRUE(windows->Release().ok());
  ASSERT_TRUE(windows->Prefetch({0, kWindowPage}).ok());
  ASSERT_TRUE(windows->Prefetch({kWindowPage, kWindowPage}).ok());
  ASSERT_TRUE(windows->Prefetch({kWindowPage, kWindowPage}).ok());
  EXPECT_EQ(ValueOf(*windows, {0, kWindowPage}), 1);
  EXPECT_EQ(ValueOf(*windows, {kWindowPage, kWindowPage}), 1);
  EXPECT_EQ(setting.reads, 2);
}

TEST(Windows, StayWhileInUse) {
  const WindowSetting setting;
  const auto windows = setting.Make(2 * kWindowPage);
  {
    const WindowUse use = *windows->Acquire({0, kWindowPage}, Access::kUpdate);
    ASSERT_TRUE(windows->Release().ok());
    std::ranges::fill(use.bytes(), std::byte{5});
    EXPECT_EQ(ValueOf(*windows, {0, kWindowPage}), 5) << "two users have the same bytes";
  }
  ASSERT_TRUE(windows->Release().ok());
  EXPECT_EQ(ValueOf(*windows, {0, kWindowPage}), 5);
}

TEST(WindowsDeathTest, AreNotTruncatedWhileInUse) {
  const WindowSetting setting;
  const auto windows = setting.Make(2 * kWindowPage);
  const WindowUse use = *windows->Acquire({0, kWindowPage}, Access::kUpdate);
  EXPECT_DEATH((void)windows->Acquire({0, 2 * kWindowPage}, Access::kRead), "is in use");
}

TEST(Windows, WriteBackWithinTheLimitOfTheTier) {
  const WindowSetting setting;
  const auto windows = setting.Make(64 * kWindowPage);
  for (int i = 0; i < 32; ++i) {
    Put(*windows, {i * 2 * kWindowPage, 2 * kWindowPage}, i);
    ASSERT_TRUE(windows->Release().ok());
  }
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(ValueOf(*windows, {i * 2 * kWindowPage, 2 * kWindowPage}), i);
}

TEST(Windows, ReleaseOnlyWindowsThatOverlapARange) {
  const WindowSetting setting;
  const auto windows = setting.Make(4 * kWindowPage);
  Put(*windows, {0, 4 * kWindowPage}, 1);
  ASSERT_TRUE(windows->Release().ok());
  ASSERT_TRUE(windows->Settle().ok());
  ASSERT_TRUE(windows->Prefetch({2 * kWindowPage, kWindowPage}).ok());
  EXPECT_EQ(ValueOf(*windows, {0, kWindowPage}), 1);
  ASSERT_TRUE(windows->Release({0, kWindowPage}).ok());
  EXPECT_EQ(ValueOf(*windows, {2 * kWindowPage, kWindowPage}), 1);
  EXPECT_EQ(setting.reads, 2) << "what was read ahead has stayed";
}

// Answers with EIO to calls of one kind once there is a file that works.
struct FailingSetting {
  explicit FailingSetting(FileCall::Kind kind)
      : setting([this, kind](const FileCall& call) {
          return fails && call.kind == kind ? EIO : kAskTheSystem;
        }) {}

  std::atomic<bool> fails = false;
  const WindowSetting setting;
};

TEST(Windows, ReportAFailedWriteBackUntilTheEnd) {
  FailingSetting failing(FileCall::Kind::kWrite);
  const auto windows = failing.setting.Make(2 * kWindowPage);
  Put(*windows, {0, kWindowPage}, 1);
  failing.fails = true;
  ASSERT_TRUE(windows->Release().ok()) << "it has only begun";
  EXPECT_THAT(windows->Settle().message(), HasSubstr("writing 4.00 KiB"));
  EXPECT_THAT(windows->Acquire({0, kWindowPage}, Access::kRead).status().message(),
              HasSubstr("Input/output error"));
}

TEST(Windows, ReportAFailedRead) {
  FailingSetting failing(FileCall::Kind::kRead);
  const auto windows = failing.setting.Make(2 * kWindowPage);
  failing.fails = true;
  ASSERT_TRUE(windows->Prefetch({0, kWindowPage}).ok()) << "it has only begun";
  EXPECT_THAT(windows->Acquire({0, kWindowPage}, Access::kRead).status().message(),
              HasSubstr("Input/output error"));
  failing.fails = false;
  EXPECT_TRUE(windows->Acquire({0, kWindowPage}, Access::kRead).ok()) << "it can be tried again";
}

}  // namespace
}  // namespace ds::offload
