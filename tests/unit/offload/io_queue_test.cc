#include "runtime/offload/io_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>

#include "runtime/base/unique_fd.h"
#include "runtime/offload/choose_queue.h"
#include "tests/support/program.h"

namespace ds::offload {
namespace {

using ds::testing::TemporaryFolder;

// A number that no system gives to a user.
constexpr uid_t kUserOfNobodyElse = 0x7ffffff0;

struct Kind {
  std::string name;
  QueueChoice choice = QueueChoice::kAuto;
  IoOptions options = {};
};

// Each must move the same bytes, whatever it asks of the system in which order.
class IoQueueTest : public ::testing::TestWithParam<Kind> {
 protected:
  IoQueueTest() {
    ChosenQueue chosen = ChooseQueue(GetParam().options, GetParam().choice, FileSystem::System());
    queue_ = std::move(chosen.queue);
    if (GetParam().choice == QueueChoice::kAuto) why_not_ = chosen.why_not_ring;
  }

  void SetUp() override {
    if (!why_not_.empty()) GTEST_SKIP() << why_not_;
  }

  UniqueFd OpenFile(int flags = O_RDWR | O_CREAT) const {
    return UniqueFd(::open((folder_.path() / "file").c_str(), flags | O_CLOEXEC, 0600));
  }

  std::optional<IoFailure> Transfer(std::vector<IoBlock> blocks) {
    auto transfer = std::make_shared<IoTransfer>(blocks.size());
    queue_->Begin(std::move(blocks), transfer);
    return transfer->Wait();
  }

  TemporaryFolder folder_;
  std::string why_not_;
  std::unique_ptr<IoQueue> queue_;
};

std::vector<IoBlock> SplitIntoBlocks(bool writes, int fd, std::span<std::byte> bytes,
                                     std::size_t block, std::optional<int> registered = {}) {
  std::vector<IoBlock> blocks;
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    blocks.push_back({.writes = writes,
                      .fd = fd,
                      .offset = static_cast<std::int64_t>(at),
                      .bytes = bytes.subspan(at, std::min(block, bytes.size() - at)),
                      .registered = registered});
  }
  return blocks;
}

std::vector<std::byte> MakeBytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = std::byte(i * 31 ^ i >> 8);
  return bytes;
}

TEST_P(IoQueueTest, ReadsWrittenData) {
  const UniqueFd fd = OpenFile();
  std::vector<std::byte> bytes = MakeBytes(1'000'000), back(bytes.size());
  ASSERT_FALSE(Transfer(SplitIntoBlocks(true, fd.get(), bytes, 4096)));
  ASSERT_FALSE(Transfer(SplitIntoBlocks(false, fd.get(), back, 8192)));
  EXPECT_EQ(back, bytes);
}

TEST_P(IoQueueTest, TransfersFromRegisteredMemory) {
  const UniqueFd fd = OpenFile();
  std::vector<std::byte> bytes = MakeBytes(100'000), back(bytes.size());
  const std::vector<std::byte> expected = bytes;
  const std::optional<int> out = queue_->Register(bytes), in = queue_->Register(back);
  ASSERT_FALSE(Transfer(SplitIntoBlocks(true, fd.get(), bytes, 4096, out)));
  ASSERT_FALSE(Transfer(SplitIntoBlocks(false, fd.get(), back, 4096, in)));
  for (const std::optional<int>& number : {out, in}) {
    if (number) queue_->Unregister(*number);
  }
  EXPECT_EQ(back, expected);
}

TEST_P(IoQueueTest, NamesTheFailedBlockAndTheReason) {
  const UniqueFd full(::open("/dev/full", O_RDWR | O_CLOEXEC));
  std::vector<std::byte> bytes(8192);
  const std::optional<IoFailure> failure = Transfer(SplitIntoBlocks(true, full.get(), bytes, 4096));
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error, ENOSPC);
  EXPECT_TRUE(failure->block.writes);
  EXPECT_EQ(failure->block.bytes.size(), 4096U);
}

TEST_P(IoQueueTest, DistinguishesTheEndOfAFileFromAFailure) {
  const UniqueFd fd = OpenFile();
  std::vector<std::byte> bytes = MakeBytes(5000), back(8192);
  ASSERT_FALSE(Transfer(SplitIntoBlocks(true, fd.get(), bytes, 5000)));
  const std::optional<IoFailure> failure = Transfer(SplitIntoBlocks(false, fd.get(), back, 8192));
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->error, 0);
  EXPECT_EQ(failure->block.offset, 5000) << "what was there has been read";
  EXPECT_EQ(failure->block.bytes.size(), 3192U);
}

TEST_P(IoQueueTest, TransfersOnBehalfOfManyAtOnce) {
  const UniqueFd fd = OpenFile();
  std::vector<std::byte> bytes = MakeBytes(64 * 4096);
  std::vector<std::shared_ptr<IoTransfer>> transfers;
  for (const IoBlock& block : SplitIntoBlocks(true, fd.get(), bytes, 4096)) {
    transfers.push_back(std::make_shared<IoTransfer>(1));
    queue_->Begin({block}, transfers.back());
  }
  for (const auto& transfer : transfers) {
    EXPECT_FALSE(transfer->Wait());
    EXPECT_TRUE(transfer->done());
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, IoQueueTest,
    ::testing::Values(
        Kind{"Ring"}, Kind{"TwoRings", QueueChoice::kAuto, {.threads = 2}},
        Kind{"RingInTurns", QueueChoice::kAuto, {.overlap_events = false}},
        Kind{"RingOneByOne", QueueChoice::kAuto, {.queue_depth = 3, .single_submit = true}},
        Kind{"Threads", QueueChoice::kThreads},
        Kind{"OneThread", QueueChoice::kThreads, {.queue_depth = 1}}),
    [](const auto& test) { return test.param.name; });

// Transfers at most one byte a call, and is interrupted before each.
class HaltingFileSystem : public FileSystem {
 public:
  ssize_t Write(int fd, std::span<const std::byte> bytes, off_t offset) override {
    if (Interrupts()) return -EAGAIN;
    return FileSystem::Write(fd, bytes.first(1), offset);
  }
  ssize_t Read(int fd, std::span<std::byte> bytes, off_t offset) override {
    if (Interrupts()) return -EINTR;
    return FileSystem::Read(fd, bytes.first(1), offset);
  }

 private:
  bool Interrupts() {
    const std::lock_guard lock(mutex_);
    return calls_++ % 2 == 0;
  }

  std::mutex mutex_;
  int calls_ = 0;
};

TEST(ThreadQueue, ContinuesAfterAPartialTransfer) {
  const TemporaryFolder folder;
  const UniqueFd fd(::open((folder.path() / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  HaltingFileSystem system;
  ThreadQueue queue({.queue_depth = 1}, system);
  std::vector<std::byte> bytes = MakeBytes(100), back(100);
  for (const bool writes : {true, false}) {
    auto transfer = std::make_shared<IoTransfer>(1);
    queue.Begin(SplitIntoBlocks(writes, fd.get(), writes ? bytes : back, 100), transfer);
    EXPECT_FALSE(transfer->Wait());
  }
  EXPECT_EQ(back, bytes);
}

TEST(ChooseQueue, ReportsTheReasonForNoRing) {
  const ChosenQueue chosen = ChooseQueue({}, QueueChoice::kThreads, FileSystem::System());
  EXPECT_EQ(chosen.queue->name(), "threads");
  EXPECT_EQ(chosen.why_not_ring, "threads were asked for");
}

// Runs in a process of its own as a user who may have one thread beside the first.
int TransferWithOneThread(const IoOptions& options, QueueChoice choice, int fd) {
  const rlimit two{2, 2};
  if (::setrlimit(RLIMIT_NPROC, &two) != 0 || ::setuid(kUserOfNobodyElse) != 0) return 2;
  const ChosenQueue chosen = ChooseQueue(options, choice, FileSystem::System());
  std::vector<std::byte> bytes = MakeBytes(100'000);
  auto transfer = std::make_shared<IoTransfer>(25);
  chosen.queue->Begin(SplitIntoBlocks(true, fd, bytes, 4096), transfer);
  return transfer->Wait() ? 1 : 0;
}

TEST(ChooseQueue, ContinuesWithTheThreadsThatItGets) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become somebody who has no process yet";
  const TemporaryFolder folder;
  const UniqueFd fd(::open((folder.path() / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  for (const QueueChoice choice : {QueueChoice::kAuto, QueueChoice::kThreads}) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(TransferWithOneThread({.threads = 4}, choice, fd.get()));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST(ChooseQueue, TakesThreadsWhereTheKernelRefuses) {
  // A ring of more entries than any kernel makes.
  const ChosenQueue chosen =
      ChooseQueue({.queue_depth = 1 << 20}, QueueChoice::kAuto, FileSystem::System());
  EXPECT_EQ(chosen.queue->name(), "threads");
  EXPECT_NE(chosen.why_not_ring.find("io_uring_setup"), std::string::npos) << chosen.why_not_ring;
}

}  // namespace
}  // namespace ds::offload
