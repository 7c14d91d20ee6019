#include "cli/remote/poll_thread.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/bounded_queue.h"

namespace ds::cli {
namespace {

constexpr std::chrono::seconds kTimeout{60};

// Tells on which thread it was called.
class Bell : public PollMember {
 public:
  void AddWatched(std::vector<pollfd>* watched) override {
    watched->push_back({rung_.get(), POLLIN, 0});
  }
  bool OnReady(std::span<const pollfd> watched) override {
    EXPECT_EQ(watched.size(), 1U);
    EXPECT_EQ(watched[0].fd, rung_.get());
    eventfd_t ignored = 0;
    ::eventfd_read(rung_.get(), &ignored);
    heard.Put(std::this_thread::get_id());
    return goes_on;
  }
  void Ring() { ::eventfd_write(rung_.get(), 1); }

  bool goes_on = true;
  ds::testing::BoundedQueue<std::thread::id> heard{16};

 private:
  const UniqueFd rung_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

TEST(PollThreadTest, OneThreadServesAll) {
  Bell first, second;
  const auto thread = PollThread::Get().value();
  EXPECT_EQ(PollThread::Get().value(), thread);
  thread->Add(&first);
  thread->Add(&second);
  second.Ring();
  const auto served = second.heard.Take(kTimeout);
  first.Ring();
  EXPECT_EQ(first.heard.Take(kTimeout), served);
  EXPECT_NE(served, std::this_thread::get_id());
  thread->Remove(&first);
  thread->Remove(&second);
}

TEST(PollThreadTest, DoesNotCallEndedOrRemovedHandlers) {
  Bell ended, removed, other;
  ended.goes_on = false;
  const auto thread = PollThread::Get().value();
  for (Bell* bell : {&ended, &removed, &other}) thread->Add(bell);
  ended.Ring();
  EXPECT_TRUE(ended.heard.Take(kTimeout).has_value());
  thread->Remove(&removed);
  removed.Ring();
  ended.Ring();
  other.Ring();
  EXPECT_TRUE(other.heard.Take(kTimeout).has_value());
  thread->Remove(&other);
  EXPECT_FALSE(ended.heard.Take(std::chrono::seconds(0)).has_value());
  EXPECT_FALSE(removed.heard.Take(std::chrono::seconds(0)).has_value());
}

}  // namespace
}  // namespace ds::cli
