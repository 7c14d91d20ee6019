#include "cli/session/task_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

namespace ds::cli {
namespace {

void Nothing() {}

TEST(TaskThreadTest, TasksAreDoneInOrderOnAnotherThread) {
  std::string done;
  bool elsewhere = false;
  TaskThread thread(Nothing);
  thread.Start();
  const auto here = std::this_thread::get_id();
  thread.Put([&] { elsewhere = std::this_thread::get_id() != here; });
  for (const char each : {'a', 'b', 'c'}) thread.Put([&done, each] { done += each; });
  EXPECT_TRUE(thread.Flush());
  EXPECT_EQ(done, "abc");
  EXPECT_TRUE(elsewhere);
  EXPECT_EQ(thread.done(), 4U);
}

TEST(TaskThreadTest, WithoutAThreadTheyAreDoneInPlace) {
  std::string done;
  TaskThread thread(Nothing);
  thread.Put([&] { done += "a"; });
  EXPECT_EQ(done, "a");
  EXPECT_TRUE(thread.Flush());
}

TEST(TaskThreadTest, WhatIsLeftIsDoneBeforeItGoes) {
  std::string done;
  {
    TaskThread thread(Nothing);
    thread.Start();
    for (int i = 0; i < 100; ++i) thread.Put([&] { done += "."; });
  }
  EXPECT_EQ(done, std::string(100, '.'));
}

TEST(TaskThreadTest, AQuietMomentComesOnceAfterATask) {
  std::promise<void> quiet;
  TaskThread thread([&] { quiet.set_value(); });  // twice would throw
  thread.Start();
  thread.Put(Nothing);
  quiet.get_future().wait();
}

// What it would have written is let go of at once, though the task before never ends.
TEST(TaskThreadTest, WhoGivesUpWaitsNoLongerForATaskThatHangs) {
  std::promise<void> begun, go_on;
  TaskThread thread(Nothing);
  thread.Start();
  thread.Put([&] {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  const auto held = std::make_shared<int>(0);
  bool done = false;
  thread.Put([held, &done] { done = true; });
  EXPECT_EQ(held.use_count(), 2);
  thread.GiveUp();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(thread.Flush());
  go_on.set_value();
  while (!thread.Flush()) {
  }
  EXPECT_FALSE(done);
}

// Also when the task before has ended meanwhile, so that nothing is waited for.
TEST(TaskThreadTest, WhatWasDroppedIsNotSaidToBeDone) {
  std::promise<void> begun, go_on, ended;
  TaskThread thread(Nothing);
  thread.Start();
  thread.Put([&] {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  thread.Put(Nothing);
  thread.GiveUp();
  thread.Put([&] { ended.set_value(); });
  go_on.set_value();
  ended.get_future().wait();
  EXPECT_FALSE(thread.Flush());
  while (!thread.Flush()) {
  }
}

}  // namespace
}  // namespace ds::cli
