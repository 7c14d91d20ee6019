#include "runtime/zero/optimizer/update_thread.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "runtime/base/allowed_cores.h"

namespace ds::zero {
namespace {

std::vector<int> LastCore() { return {ListCoresOfThread()->back()}; }

TEST(UpdateThreadTest, RunsJobsInOrderOnItsCores) {
  const std::vector<int> before = *ListCoresOfThread();
  std::vector<int> order, cores;
  UpdateThread thread(LastCore());
  const auto first = thread.Run([&] {
    order.push_back(1);
    cores = *ListCoresOfThread();
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_FALSE(c10::GradMode::is_enabled());
  });
  thread.Run([&] { order.push_back(2); }).get();
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2));
  EXPECT_EQ(cores, LastCore());
  EXPECT_EQ(*ListCoresOfThread(), before) << "the caller's own";
  first.wait();
}

TEST(UpdateThreadTest, EndsAfterItsJobsAndReturnsTheirExceptions) {
  int done = 0;
  {
    UpdateThread thread(LastCore());
    auto failed = thread.Run([] { throw std::runtime_error("no room"); });
    EXPECT_THAT([&] { failed.get(); },
                ::testing::ThrowsMessage<std::runtime_error>(::testing::Eq("no room")));
    for (int i = 0; i < 3; ++i) static_cast<void>(thread.Run([&] { ++done; }));
  }
  EXPECT_EQ(done, 3);
}

// So that whoever has waited may end what a job had leases of.
TEST(UpdateThreadTest, ReleasesCapturesOfAFinishedJob) {
  for (const bool fails : {false, true}) {
    UpdateThread thread(LastCore());
    std::promise<std::shared_future<void>> promise;
    const auto ended = promise.get_future().share();
    bool had_ended = true;
    std::shared_ptr<const bool> lease(&fails, [&](const bool*) {
      had_ended = ended.get().wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    const auto future = thread
                            .Run([lease = std::move(lease), ended] {
                              ended.wait();
                              if (*lease) throw std::runtime_error("no room");
                            })
                            .share();
    promise.set_value(future);
    future.wait();
    EXPECT_FALSE(had_ended) << fails;
  }
}

// Also where it has run no loop yet.
TEST(UpdateThreadTest, TheCallersLoopsHaveTheThreadsThatTheyHad) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  int threads = 0;
  std::thread([&] {
    const UpdateThread thread(LastCore());
    threads = at::get_num_threads();
  }).join();
  at::set_num_threads(before);
  EXPECT_EQ(threads, 3);
}

TEST(UpdateThreadTest, DoesNotStartOnCoresThatItMayNotHave) {
  EXPECT_THAT([] { UpdateThread thread({8000}); },
              ::testing::ThrowsMessage<c10::Error>(::testing::HasSubstr("cannot be bound")));
}

}  // namespace
}  // namespace ds::zero
