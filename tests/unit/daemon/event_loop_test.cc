#include "daemon/loop/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ds::daemon {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends;
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read.Reset(ends[0]);
    write.Reset(ends[1]);
  }
  void Write() const { EXPECT_EQ(::write(write.get(), "x", 1), 1); }
  UniqueFd read;
  UniqueFd write;
};

class EventLoopTest : public ::testing::Test {
 protected:
  std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
};

TEST_F(EventLoopTest, DescriptorsAreHandledInTheOrderTheyBecameReady) {
  std::array<Pipe, 4> pipes;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    ASSERT_TRUE(loop_
                    ->Add(pipes[i].read.get(),
                          [&, i] {
                            order.push_back(i);
                            loop_->Remove(pipes[i].read.get());
                            if (order.size() == pipes.size()) loop_->Quit();
                          })
                    .ok());
  }
  for (const std::size_t i : {2U, 0U, 3U, 1U}) pipes[i].Write();
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_EQ(order, std::vector<std::size_t>({2, 0, 3, 1}));
}

TEST_F(EventLoopTest, ARemovedDescriptorIsNotHandledInTheSameRound) {
  Pipe first;
  Pipe second;
  int handled = 0;
  ASSERT_TRUE(loop_
                  ->Add(first.read.get(),
                        [&] {
                          ++handled;
                          loop_->Remove(first.read.get());
                          loop_->Remove(second.read.get());
                          loop_->Quit();
                        })
                  .ok());
  ASSERT_TRUE(loop_->Add(second.read.get(), [&] { ++handled; }).ok());
  first.Write();
  second.Write();
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_EQ(handled, 1);
}

TEST_F(EventLoopTest, AReusedDescriptorIsNotHandledByARemovedHandler) {
  Pipe first;
  Pipe second;
  Pipe silent;
  int handled = 0;
  ASSERT_TRUE(loop_
                  ->Add(first.read.get(),
                        [&] {
                          const int number = second.read.get();
                          loop_->Remove(first.read.get());
                          loop_->Remove(number);
                          ASSERT_EQ(::dup2(silent.read.get(), number), number);
                          ASSERT_TRUE(loop_->Add(number, [&] { ++handled; }).ok());
                          loop_->CallAt(std::chrono::steady_clock::now(), [&] { loop_->Quit(); });
                        })
                  .ok());
  ASSERT_TRUE(loop_->Add(second.read.get(), [] {}).ok());
  first.Write();
  second.Write();
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_EQ(handled, 0);
}

// Which may hold a descriptor that a timer opens again.
TEST_F(EventLoopTest, ReleasesRemovedHandlersBeforeTimersRun) {
  Pipe pipe;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = held;
  bool gone = false;
  auto handle = [this, &pipe, &gone, &seen, held = std::move(held)] {
    loop_->Remove(pipe.read.get());
    loop_->CallAt(std::chrono::steady_clock::now(), [this, &gone, &seen] {
      gone = seen.expired();
      loop_->Quit();
    });
  };
  ASSERT_TRUE(loop_->Add(pipe.read.get(), std::move(handle)).ok());
  pipe.Write();
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_TRUE(gone);
}

TEST_F(EventLoopTest, TimersRunInTheOrderOfTheirTimes) {
  std::string order;
  const auto now = std::chrono::steady_clock::now();
  loop_->CallAt(now + std::chrono::milliseconds(2), [&] {
    order += "c";
    loop_->Quit();
  });
  loop_->CallAt(now, [&] { order += "a"; });
  loop_->CallAt(now, [&] { order += "b"; });
  const auto cancelled = loop_->CallAt(now, [&] { order += "x"; });
  loop_->CancelTimer(cancelled);
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_EQ(order, "abc");
}

TEST_F(EventLoopTest, WorkOfOtherThreadsRunsInOrderOnTheLoopsThread) {
  std::vector<int> numbers;
  std::thread::id ran_on;
  std::thread poster([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(loop_->Post([&, i] { numbers.push_back(i); }));
    EXPECT_TRUE(loop_->Post([&] {
      ran_on = std::this_thread::get_id();
      loop_->Quit();
    }));
  });
  ASSERT_TRUE(loop_->Run().ok());
  poster.join();
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  ASSERT_EQ(numbers.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i);
}

TEST_F(EventLoopTest, WorkIsRunOrRefused) {
  bool ran = false;
  loop_->Post([&] {
    loop_->Quit();
    EXPECT_TRUE(loop_->Post([&] { ran = true; }));
  });
  ASSERT_TRUE(loop_->Run().ok());
  EXPECT_TRUE(ran);
  EXPECT_FALSE(loop_->Post([] {}));
}

}  // namespace
}  // namespace ds::daemon
