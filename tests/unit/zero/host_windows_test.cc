#include "runtime/zero/storage/host_windows.h"

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/zero/storage/store.h"
#include "tests/support/deferred_copies.h"

namespace ds::zero {
namespace {

using device::MemoryTier;
using device::MemoryUse;
using ds::testing::DeferredCopies;
using ::testing::ElementsAre;

constexpr MemoryUse kUse = MemoryUse::kOptimizerState;

// Eight values, 0 to 7, on the host of a device whose copies come late.
struct HostWindowsTest : ::testing::Test {
  explicit HostWindowsTest(std::int64_t most_leaving_bytes = 16)
      : copies(std::make_shared<DeferredCopies>(most_leaving_bytes)),
        context{.ledger = &ledger, .copies = copies},
        windows(context, 8, at::kFloat, kUse) {
    windows.AcquireOnHost({0, 8}, Access::kOverwrite).values.copy_(at::arange(8));
  }

  std::vector<std::string> TakeLog() { return std::exchange(copies->log, {}); }
  std::int64_t Booked() const { return ledger.Bytes(kUse, MemoryTier::kHost); }

  device::MemoryLedger ledger;
  std::shared_ptr<DeferredCopies> copies;
  Context context;
  HostWindows windows;
};

TEST_F(HostWindowsTest, ComeAheadAndAreWaitedForByTheirLease) {
  windows.Prefetch({0, 4});
  windows.Prefetch({0, 2});  // is coming
  EXPECT_THAT(TakeLog(), ElementsAre("bring 16"));
  {
    const HostWindows::BorrowedRange lent = windows.Acquire({1, 2}, Access::kRead);
    EXPECT_THAT(TakeLog(), ElementsAre("wait"));
    EXPECT_TRUE(lent.values.equal(at::arange(1, 3, at::kFloat)));
    windows.Prefetch({0, 8});  // somebody has a part of it
  }
  EXPECT_TRUE(windows.Acquire({6, 2}, Access::kRead).values.equal(at::arange(6, 8, at::kFloat)));
  EXPECT_THAT(TakeLog(), ElementsAre("bring 8", "wait"));
}

TEST_F(HostWindowsTest, AreDroppedWithoutACopyUnlessWritten) {
  windows.Acquire({0, 4}, Access::kRead);
  windows.Prefetch({4, 4});
  TakeLog();
  EXPECT_EQ(Booked(), 32 + 32) << "the host's stay where they are";
  windows.Offload({0, 8});
  EXPECT_THAT(TakeLog(), ElementsAre("wait")) << "what nobody was lent was still coming";
  EXPECT_EQ(Booked(), 32);
  windows.Acquire({0, 4}, Access::kUpdate).values.add_(10);
  windows.Acquire({4, 4}, Access::kOverwrite).values.fill_(7);
  EXPECT_THAT(TakeLog(), ElementsAre("bring 16", "wait")) << "of the others no value matters";
  windows.Offload({0, 4});
  EXPECT_THAT(TakeLog(), ElementsAre("take 16"));
  EXPECT_EQ(windows.AcquireOnHost({0, 4}, Access::kRead).values[3].item<float>(), 13.0F);
  EXPECT_THAT(TakeLog(), ElementsAre("host waits"));
}

TEST_F(HostWindowsTest, HoldLeavingDataUntilTheComputationWaitsForIt) {
  for (const std::int64_t start : {0, 2, 4, 6}) {
    windows.Acquire({start, 2}, Access::kOverwrite).values.fill_(static_cast<float>(start));
    windows.Offload({start, 2});
    EXPECT_LE(copies->leaving_bytes(), 16);
    EXPECT_EQ(Booked(), 32 + copies->leaving_bytes());
  }
  EXPECT_THAT(TakeLog(), ElementsAre("take 8", "take 8", "take 8", "wait", "take 8", "wait"));
  EXPECT_EQ(windows.Acquire({6, 1}, Access::kRead).values.item<float>(), 6.0F)
      << "it comes behind what goes";
}

TEST_F(HostWindowsTest, ArriveAfterOnlyTheirOwnRangesHaveLeft) {
  windows.Acquire({0, 2}, Access::kUpdate).values.add_(1);
  windows.Offload({0, 2});
  windows.Prefetch({4, 2});
  TakeLog();
  EXPECT_EQ(windows.Acquire({4, 2}, Access::kRead).values[0].item<float>(), 4.0F);
  windows.Offload({4, 2});
  EXPECT_EQ(windows.AcquireOnHost({0, 2}, Access::kRead).values[0].item<float>(), 1.0F);
  EXPECT_THAT(TakeLog(), ElementsAre("wait", "host waits")) << "it was still leaving";
}

TEST_F(HostWindowsTest, WaitOnTheHostBeforeTheHostWritesIncomingData) {
  windows.Prefetch({0, 4});
  const at::Tensor came = windows.Acquire({0, 4}, Access::kRead).values;
  windows.Offload({0, 4});
  windows.Prefetch({4, 4});
  TakeLog();
  windows.AcquireOnHost({0, 4}, Access::kUpdate).values.fill_(9);
  EXPECT_THAT(TakeLog(), ElementsAre("host waits"));
  windows.AcquireOnHost({4, 4}, Access::kUpdate).values.fill_(9);
  EXPECT_THAT(TakeLog(), ElementsAre("wait", "host waits"));
  EXPECT_TRUE(came.equal(at::arange(4, at::kFloat)));
  EXPECT_EQ(windows.Acquire({3, 2}, Access::kRead).values.sum().item<float>(), 18.0F);
}

TEST_F(HostWindowsTest, OfSeveralRangesLeaveBeforeTheFullOneArrives) {
  windows.Acquire({0, 2}, Access::kUpdate).values.fill_(5);
  windows.Acquire({3, 2}, Access::kRead);
  TakeLog();
  EXPECT_EQ(windows.Acquire({0, 8}, Access::kRead).values.sum().item<float>(), 37.0F);
  EXPECT_THAT(TakeLog(), ElementsAre("take 8", "bring 32", "wait"));
}

TEST_F(HostWindowsTest, AreVisibleToReadersOfTheirStorage) {
  const HostWindows::BorrowedRange lent = windows.Acquire({0, 4}, Access::kUpdate);
  lent.values.fill_(3);
  EXPECT_EQ(windows.AcquireOnHost({1, 1}, Access::kRead).values.item<float>(), 3.0F);
  EXPECT_EQ(copies->log.size(), 2U) << "brought, and waited for";
}

using HostWindowsDeathTest = HostWindowsTest;

TEST_F(HostWindowsDeathTest, MoveNothingFromUnderALease) {
  {
    const HostWindows::BorrowedRange here = windows.Acquire({0, 2}, Access::kRead);
    EXPECT_DEATH(windows.Offload({1, 4}), "from under a lease");
    EXPECT_DEATH(windows.Acquire({0, 8}, Access::kRead), "from under a lease");
  }
  const HostWindows::BorrowedRange there = windows.AcquireOnHost({0, 2}, Access::kRead);
  EXPECT_DEATH(windows.Prefetch({0, 2}), "brought back from under a lease");
}

TEST_F(HostWindowsTest, OfNothingTouchNoOther) {
  const HostWindows::BorrowedRange lent = windows.Acquire({0, 4}, Access::kRead);
  windows.Offload({2, 0});
  windows.Prefetch({2, 0});
  EXPECT_EQ(windows.Acquire({2, 0}, Access::kUpdate).values.numel(), 0);
}

TEST_F(HostWindowsTest, AreZeroedInPlace) {
  windows.Acquire({0, 8}, Access::kUpdate).values.fill_(5);
  windows.Zero();
  EXPECT_EQ(windows.Acquire({0, 8}, Access::kRead).values.sum().item<float>(), 0.0F);
}

TEST(StoreOnTheHost, ComesByRangesForItsLeases) {
  device::MemoryLedger ledger;
  const Context context{.ledger = &ledger};  // whoever asks copies
  Store store(context, {8, at::kFloat, kUse, StorageTier::kHost});
  EXPECT_TRUE(store.is_offloaded() && !store.is_in_file());
  store.AcquireOnOwnTier({0, 8}, Access::kOverwrite).tensor().copy_(at::arange(8));
  store.Acquire({0, 4}).tensor().add_(1);
  EXPECT_EQ(ledger.Bytes(kUse, MemoryTier::kHost), 32 + 16);
  store.Offload();
  EXPECT_EQ(ledger.Bytes(kUse, MemoryTier::kHost), 32);
  EXPECT_EQ(store.Acquire(Access::kRead).tensor().sum().item<float>(), 28.0F + 4.0F);
  store.Release();
  store.Zero();
  EXPECT_EQ(store.Acquire(Access::kRead).tensor().sum().item<float>(), 0.0F);
}

}  // namespace
}  // namespace ds::zero
