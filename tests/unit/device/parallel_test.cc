// Loops of ours really run on several threads, each element once.

#include "runtime/device/parallel.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ds::device {
namespace {

class Parallel : public ::testing::Test {
 protected:
  Parallel() { at::set_num_threads(2); }
  ~Parallel() override { at::set_num_threads(before_); }

  struct Calls {
    std::set<std::thread::id> threads;
    std::vector<int> visits;
  };
  static Calls Visit(std::int64_t count, std::int64_t grain) {
    Calls calls{.threads = {}, .visits = std::vector<int>(static_cast<std::size_t>(count))};
    std::mutex mutex;
    ParallelFor(0, count, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++calls.visits[static_cast<std::size_t>(i)];
      const std::lock_guard lock(mutex);
      calls.threads.insert(std::this_thread::get_id());
    });
    return calls;
  }

 private:
  const int before_ = at::get_num_threads();
};

TEST_F(Parallel, VisitsEveryElementOnceOnAllThreads) {
  const Calls calls = Visit(1001, 1);
  EXPECT_THAT(calls.visits, ::testing::Each(1));
  EXPECT_EQ(calls.threads.size(), 2);
}

TEST_F(Parallel, KeepsSmallRangesOnTheCallersThread) {
  for (const std::int64_t count : {0, 1, 64}) {
    const Calls calls = Visit(count, 64);
    EXPECT_THAT(calls.visits, ::testing::Each(1));
    if (count > 0) {
      EXPECT_THAT(calls.threads, ::testing::ElementsAre(std::this_thread::get_id()));
    }
  }
}

TEST_F(Parallel, RunsLoopsWithinLoopsOnTheThreadThatIsThere) {
  std::mutex mutex;
  std::set<std::thread::id> outer;
  ParallelFor(0, 2, 1, [&](std::int64_t, std::int64_t) {
    const Calls inner = Visit(100, 1);
    EXPECT_THAT(inner.threads, ::testing::ElementsAre(std::this_thread::get_id()));
    const std::lock_guard lock(mutex);
    outer.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(outer.size(), 2);
}

TEST_F(Parallel, RethrowsExceptionsOfABody) {
  const auto body = [](std::int64_t begin, std::int64_t) {
    if (begin > 0) throw std::runtime_error("part " + std::to_string(begin));
  };
  EXPECT_THAT([&] { ParallelFor(0, 10, 1, body); },
              ::testing::ThrowsMessage<std::runtime_error>(::testing::Eq("part 5")));
}

}  // namespace
}  // namespace ds::device
