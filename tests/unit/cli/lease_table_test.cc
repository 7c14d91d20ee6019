// Whether a pause of dsrun itself is known when a host is blamed.

#include "cli/host/lease_table.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ds::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A table of one host with a lease of 9 s, so that it is to be renewed every 1.5 s.
class PauseMemoryTest : public ::testing::Test {
 protected:
  PauseMemoryTest() { table_.Add(7, now_); }

  // Waits for the next look, or for `length`.
  void Wait(std::chrono::nanoseconds length) {
    table_.BeginWait({now_, now_});
    now_ += length;
    table_.EndWait({now_, now_});
  }
  // Lets the host answer every renewal that is due in this time.
  void Renew(std::chrono::nanoseconds length) {
    for (const auto end = now_ + length; now_ < end;) {
      Wait(table_.look_interval());
      for (const int number : table_.TakeDue(now_)) table_.OnRenewed(number, OkStatus(), now_);
    }
  }
  bool remembers(std::optional<int> number) const {
    return table_.FindOwnPause(now_, number).has_value();
  }

  LeaseTable table_{seconds(9)};
  std::chrono::nanoseconds now_ = seconds(1000);
};

TEST_F(PauseMemoryTest, APauseCountsForEverybodyFor2Leases) {
  Renew(seconds(5));
  Wait(seconds(4));
  EXPECT_TRUE(remembers(std::nullopt));
  EXPECT_TRUE(remembers(7));
  EXPECT_TRUE(remembers(8)) << "of no host that is known";
  Renew(seconds(19));
  EXPECT_FALSE(remembers(std::nullopt));
  EXPECT_FALSE(remembers(8));
}

TEST_F(PauseMemoryTest, APauseCountsForAHostUntilItHasOutlivedIt) {
  Renew(seconds(5));
  Wait(seconds(4));
  Renew(seconds(14));  // a daemon whose lease is over answers for the grace of its ranks
  for (int i = 0; i < 100; ++i) Wait(table_.look_interval());
  EXPECT_FALSE(remembers(std::nullopt));
  EXPECT_TRUE(remembers(7));
  EXPECT_EQ(table_.FindOwnPause(now_, 7)->length, seconds(4));
}

TEST_F(PauseMemoryTest, APauseIsForgottenWhenAHostHasOutlivedIt) {
  Renew(seconds(5));
  Wait(seconds(4));
  Renew(seconds(19));
  for (int i = 0; i < 100; ++i) Wait(table_.look_interval());
  EXPECT_FALSE(remembers(7));
}

TEST_F(PauseMemoryTest, ALostHostKeepsThePauseThatCostItsLeaseAndNoLaterOne) {
  Wait(seconds(10));
  EXPECT_EQ(table_.TakeChanges(now_, 0).front().grade, HostGrade::kLost);
  table_.Add(8, now_);
  Renew(seconds(20));
  Wait(seconds(20));
  Renew(seconds(60));
  EXPECT_EQ(table_.FindOwnPause(now_, 7)->length, seconds(10));
  EXPECT_FALSE(remembers(8));
}

TEST_F(PauseMemoryTest, AShortPauseCostsNoLease) {
  Renew(seconds(5));
  Wait(milliseconds(2900));
  EXPECT_FALSE(remembers(7));
}

}  // namespace
}  // namespace ds::cli
