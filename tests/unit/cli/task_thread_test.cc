#include "cli/agent/task_thread.h"

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

TEST(TaskThreadTest, FinishesTasksBeforeItEnds) {
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

// A task that has begun and hangs until it is let go.
class HangingTask {
 public:
  explicit HangingTask(TaskThread& thread) {
    thread.Put([this] {
      begun_.set_value();
      go_on_.get_future().wait();
    });
    begun_.get_future().wait();
  }
  void GoOn() { go_on_.set_value(); }

 private:
  std::promise<void> begun_, go_on_;
};

// What it would have written is let go of at once, though the task before never ends.
TEST(TaskThreadTest, GivingUpEndsTheWaitForAHangingTask) {
  TaskThread thread(Nothing);
  thread.Start();
  HangingTask hanging(thread);
  const auto held = std::make_shared<int>(0);
  bool done = false;
  thread.Put([held, &done] { done = true; });
  EXPECT_EQ(held.use_count(), 2);
  thread.GiveUp();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(thread.Flush());
  hanging.GoOn();
  while (!thread.Flush()) {
  }
  EXPECT_FALSE(done);
}

// Also when the task before has ended meanwhile, so that nothing is waited for.
TEST(TaskThreadTest, DroppedTasksAreNotReportedAsDone) {
  std::promise<void> ended;
  TaskThread thread(Nothing);
  thread.Start();
  HangingTask hanging(thread);
  thread.Put(Nothing);
  thread.GiveUp();
  thread.Put([&] { ended.set_value(); });
  hanging.GoOn();
  ended.get_future().wait();
  EXPECT_FALSE(thread.Flush());
  while (!thread.Flush()) {
  }
}

}  // namespace
}  // namespace ds::cli
