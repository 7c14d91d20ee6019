#include "runtime/zero/store.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace ds::zero {
namespace {

using device::MemoryTier;
using device::MemoryUse;

struct Setting {
  device::MemoryLedger ledger;
  Context context{.ledger = &ledger};
};

Store MakeStore(const Setting& setting) {
  Store store(setting.context, {8, at::kFloat, MemoryUse::kMasterWeights});
  store.Acquire().tensor().copy_(at::arange(8));
  return store;
}

TEST(Store, HandsOutRangesOfItsBytes) {
  const Setting setting;
  Store store = MakeStore(setting);
  EXPECT_TRUE(store.Acquire({2, 3}).tensor().equal(at::arange(2, 5, at::kFloat)));
  store.Acquire({2, 3}).tensor().zero_();
  EXPECT_EQ(store.Acquire().tensor().sum().item<double>(), 28 - 9);
}

TEST(Store, BooksItsBytesForAsLongAsItLives) {
  const Setting setting;
  {
    Store store = MakeStore(setting);
    const Store moved = std::move(store);
    EXPECT_EQ(setting.ledger.Bytes(MemoryUse::kMasterWeights, MemoryTier::kHost), 32);
  }
  EXPECT_EQ(setting.ledger.Bytes(MemoryUse::kMasterWeights, MemoryTier::kHost), 0);
}

TEST(Store, KeepsViewsWhereverItsBytesHaveBeen) {
  const Setting setting;
  Store store = MakeStore(setting);
  const at::Tensor view = store.Acquire({4, 4}).tensor();
  store.Release();
  EXPECT_EQ(view.storage().nbytes(), 0U) << "the bytes are away";
  store.Release();
  store.Prefetch();
  EXPECT_TRUE(view.equal(at::arange(4, 8, at::kFloat)));
  store.Release();
  EXPECT_TRUE(store.Acquire().tensor().equal(at::arange(8, at::kFloat))) << "a lease fetches them";
  EXPECT_EQ(setting.ledger.Bytes(MemoryUse::kMasterWeights, MemoryTier::kHost), 32);
}

TEST(StoreDeathTest, GivesNoBytesAwayThatSomebodyUses) {
  const Setting setting;
  Store store = MakeStore(setting);
  const Lease lease = store.Acquire({0, 1});
  EXPECT_DEATH(store.Release(), "from under a lease");
  EXPECT_DEATH(store = Store(), "before a lease of it");
}

TEST(Store, OfNothingDoesNothing) {
  Store store;
  EXPECT_FALSE(store.defined());
  store.Prefetch();
  store.Release();
}

}  // namespace
}  // namespace ds::zero
