#include "runtime/zero/storage/store.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "runtime/zero/storage/store_source.h"
#include "tests/support/program.h"
#include "tests/support/scripted_file_system.h"

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

TEST(StoreDeathTest, ReleasesNoBytesInUse) {
  const Setting setting;
  Store store = MakeStore(setting);
  const Lease lease = store.Acquire({0, 1});
  EXPECT_DEATH(store.Release(), "from under a lease");
  EXPECT_DEATH(store = Store(), "before a lease of it");
}

TEST(Store, IsReadAndWrittenInPlace) {
  const Setting setting;
  Store store = MakeStore(setting);
  const auto source = SourceOf(store, {2, 4});
  for (const bool is_offloaded : {false, true}) {
    SCOPED_TRACE(is_offloaded);
    const at::Tensor values = at::arange(2, 6, at::kFloat) + (is_offloaded ? 10 : 0);
    if (is_offloaded) store.Release();
    EXPECT_TRUE(checkpoint::ReadAll(*source).value().equal(values));
    EXPECT_TRUE(checkpoint::WriteAll(values + 10, *source).ok());
    EXPECT_TRUE(checkpoint::ReadAll(*source).value().equal(values + 10));
    EXPECT_EQ(store.AcquireOnOwnTier({0, 8}, Access::kRead).tensor()[7].item<float>(), 7.0F);
  }
  EXPECT_TRUE(
      store.Acquire().tensor().equal(at::tensor({0.F, 1.F, 22.F, 23.F, 24.F, 25.F, 6.F, 7.F})))
      << "what was written while they were away has come back with them";
}

TEST(StoreDeathTest, ReloadsNoBytesInUse) {
  const Setting setting;
  Store store = MakeStore(setting);
  store.Release();
  const Lease lease = store.AcquireOnOwnTier({0, 1}, Access::kRead);
  EXPECT_DEATH(store.Prefetch(), "brought back from under a lease");
}

// A store in a file, which only leases bring.
struct FileSetting {
  explicit FileSetting(std::int64_t smallest_bytes = 1)
      : tier(offload::FileTier::Open({.folders = {folder.path()},
                                      .queue = offload::QueueChoice::kThreads,
                                      .system = system})
                 .value()) {
    setting.context.tiers = {.optimizer_files = tier.get(), .smallest_bytes = smallest_bytes};
  }

  Store Make(std::int64_t count) const {
    return {setting.context, {count, at::kFloat, MemoryUse::kMasterWeights, StorageTier::kFile}};
  }

  ds::testing::TemporaryFolder folder;
  std::atomic<int> read_error = ds::testing::kAskTheSystem;
  ds::testing::ScriptedFileSystem system{[this](const ds::testing::FileCall& call) {
    return call.kind == ds::testing::FileCall::Kind::kRead ? read_error.load()
                                                           : ds::testing::kAskTheSystem;
  }};
  std::unique_ptr<offload::FileTier> tier;
  Setting setting;
};

TEST(StoreInAFile, BringsRangesForTheirLeases) {
  const FileSetting files;
  Store store = files.Make(5000);
  EXPECT_TRUE(store.is_in_file() && store.is_offloaded());
  store.Acquire(Access::kOverwrite).tensor().copy_(at::arange(5000));
  store.Offload();
  store.Acquire({1024, 1024}).tensor().add_(1);
  store.Offload({1024, 1024});
  store.Prefetch({2048, 2048});
  EXPECT_TRUE(store.Acquire({2048, 2048}, Access::kRead)
                  .tensor()
                  .equal(at::arange(2048, 4096, at::kFloat)));
  store.Offload();
  EXPECT_EQ(store.Acquire({1500, 1}, Access::kRead).tensor().item<float>(), 1501.0F);
  EXPECT_EQ(store.Acquire({4999, 1}, Access::kRead).tensor().item<float>(), 4999.0F);
}

// As on a device that does not see the host's buffers, which is the CPU here, too.
TEST(StoreInAFile, IsCopiedForTheLeasesOfADeviceAndBackAfterThem) {
  FileSetting files;
  files.setting.context.tiers.copies_from_files = true;
  Store store = files.Make(5000);
  store.Acquire(Access::kOverwrite).tensor().copy_(at::arange(5000));
  store.Offload();
  {
    const Lease host = store.AcquireOnOwnTier({1024, 1024}, Access::kUpdate);
    const Lease lease = store.Acquire({1024, 1024});
    EXPECT_NE(lease.tensor().data_ptr(), host.tensor().data_ptr());
    const device::MemoryLedger& ledger = files.setting.ledger;
    EXPECT_EQ(ledger.Bytes(MemoryUse::kMasterWeights, MemoryTier::kHost), 4096);
    lease.tensor().add_(1);
    EXPECT_EQ(host.tensor()[0].item<float>(), 1024.0F) << "not yet";
  }
  store.Offload();
  EXPECT_EQ(files.setting.ledger.Bytes(MemoryUse::kMasterWeights, MemoryTier::kHost), 0);
  store.Acquire({1024, 1024}, Access::kRead).tensor().zero_();  // of its own copy
  store.Offload();
  EXPECT_TRUE(store.AcquireOnOwnTier({1024, 1024}, Access::kRead)
                  .tensor()
                  .equal(at::arange(1025, 2049, at::kFloat)));
  EXPECT_EQ(store.Acquire({4999, 1}, Access::kRead).tensor().item<float>(), 4999.0F);
}

TEST(StoreInAFile, IsBookedAsAFile) {
  const FileSetting files;
  const Store store = files.Make(5000);
  const device::MemoryLedger& ledger = files.setting.ledger;
  EXPECT_EQ(ledger.Bytes(MemoryUse::kMasterWeights, MemoryTier::kFile), 20'000);
  EXPECT_EQ(ledger.Bytes(MemoryUse::kMasterWeights, MemoryTier::kHost), 0);
}

TEST(StoreInAFile, IsNoneWhereItIsSmall) {
  const FileSetting files(/*smallest_bytes=*/20'001);
  const Store store = files.Make(5000);
  EXPECT_FALSE(store.is_offloaded());
  EXPECT_EQ(files.setting.ledger.Bytes(MemoryUse::kMasterWeights, MemoryTier::kHost), 20'000);
}

TEST(StoreInAFile, IsZeroedOverOldData) {
  const FileSetting files;
  {
    Store before = files.Make(5000);
    before.Acquire(Access::kOverwrite).tensor().fill_(7);
    before.Offload();
  }
  Store store = files.Make(5000);
  store.Zero();
  EXPECT_EQ(store.Acquire(Access::kRead).tensor().abs().sum().item<float>(), 0.0F);
}

TEST(StoreInAFile, IsReadAndWrittenByCheckpointsRangeByRange) {
  const FileSetting files;
  Store store = files.Make(5000);
  store.Acquire(Access::kOverwrite).tensor().copy_(at::arange(5000));
  store.Offload();
  const auto source = SourceOf(store, {100, 3000});
  const at::Tensor values = at::arange(100, 3100, at::kFloat);
  EXPECT_TRUE(checkpoint::ReadAll(*source).value().equal(values));
  EXPECT_TRUE(checkpoint::WriteAll(values * 2, *source).ok());
  EXPECT_TRUE(checkpoint::ReadAll(*source).value().equal(values * 2));
  EXPECT_EQ(store.Acquire({99, 1}, Access::kRead).tensor().item<float>(), 99.0F);
}

TEST(StoreInAFile, NamesFailedReads) {
  FileSetting files;
  Store store = files.Make(5000);
  store.Acquire(Access::kOverwrite).tensor().zero_();
  store.Offload();
  files.read_error = EIO;
  try {
    store.Acquire(Access::kRead);
    FAIL() << "it has been read";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("reading 20.0 KiB"),
                                               ::testing::HasSubstr(files.folder.path().string()),
                                               ::testing::HasSubstr("Input/output error")));
  }
}

TEST(Store, OfNothingDoesNothing) {
  Store store;
  EXPECT_FALSE(store.defined());
  store.Prefetch();
  store.Release();
}

}  // namespace
}  // namespace ds::zero
