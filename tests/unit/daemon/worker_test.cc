#include "daemon/loop/worker.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

namespace ds::daemon {
namespace {

const Worker::Deadline kPast{};
const Worker::Deadline kInAnHour = Worker::Deadline::clock::now() + std::chrono::hours(1);

TEST(WorkerTest, ReturnsTheResult) {
  Worker worker;
  for (const int number : {1, 2}) {
    const StatusOr<int> result =
        worker.Run<int>([number](const Worker::TellStep&) { return number; }, kInAnHour);
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(*result, number);
  }
}

TEST(WorkerTest, ATaskThatHangsIsNamed) {
  std::promise<void> told, go_on;
  const std::shared_future<void> released = go_on.get_future().share();
  Worker worker;
  auto first = std::async(std::launch::async, [&] {
    return worker.Run<int>(
        [&told, released](const Worker::TellStep& tell) {
          tell("looking for a file");
          told.set_value();
          released.wait();
          return 1;
        },
        kInAnHour);
  });
  told.get_future().wait();
  const StatusOr<int> second = worker.Run<int>([](const Worker::TellStep&) { return 2; }, kPast);
  EXPECT_EQ(second.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(second.status().message(), "looking for a file");
  go_on.set_value();
  EXPECT_EQ(*first.get(), 1);
}

// It ends when its task does.
TEST(WorkerTest, MayBeDestroyedWhileATaskHangs) {
  std::promise<void> begun, go_on, ended;
  {
    Worker worker;
    const StatusOr<int> result = worker.Run<int>(
        [released = go_on.get_future().share(), &begun, &ended](const Worker::TellStep&) {
          begun.set_value();
          released.wait();
          ended.set_value();
          return 1;
        },
        kPast);
    EXPECT_EQ(result.status().code(), StatusCode::kDeadlineExceeded);
    begun.get_future().wait();
  }
  go_on.set_value();
  ended.get_future().wait();
}

}  // namespace
}  // namespace ds::daemon
