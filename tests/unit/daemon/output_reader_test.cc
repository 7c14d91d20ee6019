#include "daemon/logs/output_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ds::daemon {
namespace {

// A reader on a pipe that the test writes to, with a log of 1000 bytes.
class OutputReaderTest : public ::testing::Test {
 protected:
  OutputReaderTest() {
    std::array<int, 2> ends;
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    write_.Reset(ends[1]);
    reader_ = std::make_unique<OutputReader>(
        RankContext{loop_.get(), &log_, nullptr, buffer_, /*rank=*/7}, v1::RankOutput::STDERR,
        UniqueFd(ends[0]), [this] { ended_ = true; });
    EXPECT_TRUE(reader_->Watch().ok());
  }

  void Write(const std::string& text) const {
    ASSERT_EQ(::write(write_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // Calls `step` after every round of the loop until it returns false.
  void EveryRound(const std::function<bool()>& step) {
    loop_->CallAt(std::chrono::steady_clock::now(),
                  [this, step] { step() ? EveryRound(step) : loop_->Quit(); });
  }

  // What the log holds, acknowledged.
  std::string Take() {
    auto watcher = log_.Open(taken_);
    v1::EventBatch batch;
    std::string text;
    while (log_.Wait(&*watcher, {}, &batch) == EventLog::Next::kBatch) {
      for (const v1::Event& event : batch.events()) {
        EXPECT_EQ(event.rank_output().rank(), 7U);
        EXPECT_EQ(event.rank_output().stream(), v1::RankOutput::STDERR);
        text += event.rank_output().data();
        taken_ = event.sequence();
      }
      log_.Acknowledge(taken_);
    }
    return text;
  }

  std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
  EventLog log_{EventLogLimits{.max_bytes = 1000}, [this] { reader_->Resume(); }};
  std::vector<char> buffer_ = std::vector<char>(100);
  UniqueFd write_;
  std::unique_ptr<OutputReader> reader_;
  std::uint64_t taken_ = 0;
  bool ended_ = false;
};

std::string Lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(i) + "\n";
  return text;
}

TEST_F(OutputReaderTest, AFullLogStopsReadingUntilSpaceIsFree) {
  constexpr int kMaxRoundsFull = 50;  // a reader that went on would read 100 bytes in each
  const std::string text = Lines(1000);
  Write(text);
  write_.Reset();
  std::string read;
  int rounds_full = 0;
  int times_full = 0;
  EveryRound([&] {
    if (ended_) return false;
    if (!log_.full() || ++rounds_full < kMaxRoundsFull) return true;
    rounds_full = 0;
    ++times_full;
    const std::string taken = Take();
    EXPECT_LT(taken.size(), 1200U);
    read += taken;
    return true;
  });
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_EQ(read + Take(), text);
  EXPECT_GE(times_full, 8);
}

TEST_F(OutputReaderTest, DrainingReadsAllDataDespiteAFullLog) {
  const std::string text = Lines(1000) + "unfinished";
  Write(text);
  reader_->DrainAndClose();
  EXPECT_FALSE(reader_->open());
  EXPECT_FALSE(ended_);
  EXPECT_EQ(Take(), text);
}

TEST_F(OutputReaderTest, AnUnfinishedLineIsPassedOnWhileTheRankWaits) {
  Write("line\nname? ");
  std::string read;
  EveryRound([&] {
    read += Take();
    if (read == "line\nname? " && write_.valid()) {
      Write("and more\n");
      write_.Reset();
    }
    return !ended_;
  });
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_EQ(read + Take(), "line\nname? and more\n");
}

}  // namespace
}  // namespace ds::daemon
