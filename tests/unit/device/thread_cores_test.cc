#include "runtime/device/thread_cores.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "runtime/base/allowed_cores.h"
#include "runtime/device/parallel.h"

namespace ds::device {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

// Of the threads that a loop runs on.
std::vector<std::vector<int>> ListCoresOfPool() {
  std::mutex mutex;
  std::vector<std::vector<int>> cores;
  ParallelFor(0, at::get_num_threads(), 1, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    cores.push_back(*ListCoresOfThread());
  });
  return cores;
}

class ThreadCores : public ::testing::Test {
 protected:
  ThreadCores() { at::set_num_threads(3); }
  ~ThreadCores() override { at::set_num_threads(threads_); }

  const int threads_ = at::get_num_threads();
  const std::vector<int> all_ = *ListCoresOfThread();
};

TEST_F(ThreadCores, ABoundPoolHasItsCoresAndGivesThemBack) {
  ASSERT_THAT(ListCoresOfPool(), SizeIs(3)) << "it has started";
  const std::vector<int> last = {all_.back()};
  {
    const auto bound = BoundPool::Bind(last);
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    EXPECT_EQ(at::get_num_threads(), 1) << "no more than cores";
    EXPECT_EQ(*ListCoresOfThread(), last);
    std::vector<int> of_child;
    std::thread([&] { of_child = *ListCoresOfThread(); }).join();
    EXPECT_EQ(of_child, last);
  }
  EXPECT_EQ(at::get_num_threads(), 3);
  EXPECT_THAT(ListCoresOfPool(), ::testing::AllOf(SizeIs(3), Each(all_)));
}

TEST_F(ThreadCores, AllThreadsOfAPoolAreBound) {
  const std::vector<int> first = {all_.front()};
  ASSERT_TRUE(BindThreadAndPool(first, 3).ok());
  EXPECT_THAT(ListCoresOfPool(), ::testing::AllOf(SizeIs(3), Each(first)));
  ASSERT_TRUE(BindThreadAndPool(all_, 3).ok());
}

TEST_F(ThreadCores, NamesTheCoresThatTheKernelRefuses) {
  EXPECT_THAT(BindThreadAndPool({8000}, 3).message(), ::testing::HasSubstr("cannot be bound"));
  EXPECT_EQ(*ListCoresOfThread(), all_);
}

}  // namespace
}  // namespace ds::device
