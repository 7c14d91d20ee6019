#include "runtime/comm/shm/call_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/comm/shm/thread_group.h"

namespace ds::comm {
namespace {

using ::testing::HasSubstr;

// Rank 1 comes to the first call only when rank 0 has queued three and is back.
TEST(CallQueueTest, PostReturnsBeforeTheCallHasEndedAndCallsRunInOrder) {
  std::latch posted(1);
  RunGroup(SmallChunks(2), [&](HostGroup& group) {
    CallQueue queue(&group);
    std::vector<int> order;
    std::latch done(3);
    if (group.rank() == 1) posted.wait();
    for (int i = 0; i < 3; ++i) {
      queue.Post([&, i](CpuGroup& g) { return order.push_back(i), g.Barrier(); },
                 [&](const Status& status) {
                   EXPECT_TRUE(status.ok()) << status.message();
                   done.count_down();
                 });
    }
    if (group.rank() == 0) posted.count_down();
    EXPECT_TRUE(queue.Run([&](CpuGroup& g) { return order.push_back(3), g.Barrier(); }).ok());
    done.wait();
    EXPECT_EQ(order, (std::vector{0, 1, 2, 3}));
  });
}

TEST(CallQueueTest, NothingPostedMeansNoThread) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    CallQueue queue(&group);
    const std::thread::id self = std::this_thread::get_id();
    std::thread::id ran;
    EXPECT_TRUE(
        queue.Run([&](CpuGroup& g) { return ran = std::this_thread::get_id(), g.Barrier(); }).ok());
    EXPECT_EQ(ran, self);
  });
}

TEST(CallQueueTest, AfterAFailureAllReportTheFirstErrorAndNoneRuns) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    CallQueue queue(&group);
    const auto fail = [&](CpuGroup& g) -> Status {
      if (g.rank() == 0) return InternalError("rank 0 has no data");
      return g.Barrier();
    };
    std::promise<Status> first, second;
    queue.Post(fail, [&](const Status& status) { first.set_value(status); });
    queue.Post([](CpuGroup&) -> Status { return ADD_FAILURE() << "ran", OkStatus(); },
               [&](const Status& status) { second.set_value(status); });
    const Status error = first.get_future().get();
    EXPECT_THAT(error.message(), HasSubstr("rank 0 has no data")) << "on both ranks";
    EXPECT_EQ(second.get_future().get(), error);
    EXPECT_EQ(queue.Run(fail), error);
  });
}

TEST(CallQueueTest, ACallThatThrowsHasFailed) {
  const auto says = [](const CallQueue::Call& call, StatusCode code, const char* message) {
    RunGroup(SmallChunks(2), [&](HostGroup& group) {
      CallQueue queue(&group);
      std::promise<Status> ended;
      const auto barrier = [](CpuGroup& g) { return g.Barrier(); };
      queue.Post(group.rank() == 0 ? call : barrier,
                 [&](const Status& status) { ended.set_value(status); });
      const Status error = ended.get_future().get();
      EXPECT_THAT(error.message(), HasSubstr(message)) << "on both ranks";
      if (group.rank() == 0) {
        EXPECT_EQ(error.code(), code);
      }
      EXPECT_EQ(queue.Run(barrier), error);
    });
  };
  says([](CpuGroup&) -> Status { throw std::runtime_error("no such view"); }, StatusCode::kInternal,
       "rank 0 failed in a collective: no such view");
  says([](CpuGroup&) -> Status { throw std::bad_alloc(); }, StatusCode::kResourceExhausted,
       "rank 0 has no memory for a collective");
}

// Rank 1 never comes: rank 0's queue ends what it waits in.
TEST(CallQueueTest, AQueueThatGoesEndsItsCalls) {
  std::latch gone(1);
  RunGroup(SmallChunks(2), [&](HostGroup& group) {
    if (group.rank() == 1) {
      gone.wait();
      EXPECT_THAT(group.Barrier().message(), HasSubstr("rank 0 left with calls under way"));
      return;
    }
    std::vector<Status> ends;
    std::optional<CallQueue> queue(&group);
    const auto kept = std::make_shared<int>();
    std::latch running(1);
    queue->Post([&, kept](CpuGroup& g) { return running.count_down(), g.Barrier(); },
                [&](const Status& status) { ends.push_back(status); });
    queue->Post([kept](CpuGroup& g) { return g.Barrier(); },
                [&](const Status& status) { ends.push_back(status); });
    running.wait();
    queue.reset();
    ASSERT_EQ(ends.size(), 2u);
    EXPECT_THAT(ends[0].message(), HasSubstr("rank 0 left with calls under way"));
    EXPECT_FALSE(ends[1].ok());
    EXPECT_EQ(kept.use_count(), 1);
    gone.count_down();
  });
}

}  // namespace
}  // namespace ds::comm
