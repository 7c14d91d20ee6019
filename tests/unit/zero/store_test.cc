#include "runtime/zero/store.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "runtime/zero/store_source.h"

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

TEST(Store, IsReadAndWrittenWhereItLies) {
  const Setting setting;
  Store store = MakeStore(setting);
  const auto source = SourceOf(store, {2, 4});
  for (const bool away : {false, true}) {
    SCOPED_TRACE(away);
    const at::Tensor values = at::arange(2, 6, at::kFloat) + (away ? 10 : 0);
    if (away) store.Release();
    EXPECT_TRUE(checkpoint::ReadAll(*source).value().equal(values));
    EXPECT_TRUE(checkpoint::WriteAll(values + 10, *source).ok());
    EXPECT_TRUE(checkpoint::ReadAll(*source).value().equal(values + 10));
    EXPECT_EQ(store.AcquireWhereItLies({0, 8}).tensor()[7].item<float>(), 7.0F);
  }
  EXPECT_TRUE(
      store.Acquire().tensor().equal(at::tensor({0.F, 1.F, 22.F, 23.F, 24.F, 25.F, 6.F, 7.F})))
      << "what was written while they were away has come back with them";
}

TEST(StoreDeathTest, BringsNoBytesBackThatSomebodyUses) {
  const Setting setting;
  Store store = MakeStore(setting);
  store.Release();
  const Lease lease = store.AcquireWhereItLies({0, 1});
  EXPECT_DEATH(store.Prefetch(), "brought back from under a lease");
}

TEST(Store, OfNothingDoesNothing) {
  Store store;
  EXPECT_FALSE(store.defined());
  store.Prefetch();
  store.Release();
}

}  // namespace
}  // namespace ds::zero
