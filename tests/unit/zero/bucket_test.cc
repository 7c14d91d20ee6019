#include "runtime/zero/bucket.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/local_world.h"

namespace ds::zero {
namespace {

using ::testing::ElementsAre;

NamedParameter Make(const std::string& name, std::int64_t numel, double decay,
                    bool frozen = false) {
  return {.name = name,
          .tensor = at::zeros({numel}).set_requires_grad(!frozen),
          .placement = {.global_shape = {numel}},
          .group = {.weight_decay_factor = decay}};
}

std::vector<std::string> NamesOf(const std::vector<NamedParameter>& members) {
  std::vector<std::string> names;
  for (const NamedParameter& member : members) names.push_back(member.name);
  return names;
}

TEST(Bucket, TakesAllTrainedParametersTogether) {
  const auto buckets = BucketParameters({Make("w", 100, 1), Make("b", 10, 0), Make("f", 5, 1, true),
                                         Make("v", 60, 1), Make("c", 20, 0)});
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_THAT(NamesOf(buckets[0]), ElementsAre("w", "v", "b", "c"));
  EXPECT_THAT(NamesOf(buckets[1]), ElementsAre("f"));
}

TEST(Bucket, TakesOnlyParametersWithTheSameTransport) {
  NamedParameter narrow = Make("narrow", 8, 0), rows = Make("rows", 8, 1);
  NamedParameter table = Make("table", 8, 1);
  table.placement.stages = {0, 2};
  narrow.reduction = at::kBFloat16;
  rows.sparse_rows = true;
  const auto buckets = BucketParameters({Make("w", 8, 1), narrow, table, rows, Make("b", 8, 0)});
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_THAT(NamesOf(buckets[0]), ElementsAre("w", "b"));
  EXPECT_THAT(NamesOf(buckets[1]), ElementsAre("narrow"));
  EXPECT_THAT(NamesOf(buckets[2]), ElementsAre("table"));
  EXPECT_THAT(NamesOf(buckets[3]), ElementsAre("rows"));
}

TEST(Bucket, HasARangeForEachGroupAndEachKindOfPlacement) {
  const auto world = comm::MakeLocalWorld(1);
  device::MemoryLedger ledger;
  const Context context{
      .groups = {.all = world[0].get(), .gradients = world[0].get(), .shards = world[0].get()},
      .ledger = &ledger};
  NamedParameter copied = Make("copied", 30, 1);
  copied.placement.copy_axes = copied.placement.copy_axes.With(topology::Axis::kTensor);
  BufferPool pool(context);
  Bucket bucket(context, pool,
                BucketParameters({Make("w", 100, 1), Make("b", 10, 0), copied, Make("v", 60, 1),
                                  Make("c", 20, 0)})[0],
                StorageTier::kHere);
  ASSERT_EQ(bucket.ranges().size(), 3U);
  const auto& ranges = bucket.ranges();
  EXPECT_EQ(bucket.member_of(ranges[0]).name, "w");
  EXPECT_EQ(ranges[0].range, (FlatRange{0, 192})) << "w, v behind it at 128";
  EXPECT_EQ(bucket.member_of(ranges[1]).name, "b");
  EXPECT_EQ(ranges[1].range, (FlatRange{192, 64})) << "b, c behind it";
  EXPECT_EQ(bucket.member_of(ranges[2]).name, "copied");
  EXPECT_EQ(ranges[2].range, (FlatRange{256, 64}));
  EXPECT_EQ(bucket.parameters().layout().padded_numel(), 320);

  Bucket frozen(context, pool, {Make("f", 5, 1, true)}, StorageTier::kHere);
  EXPECT_FALSE(frozen.trainable());
  EXPECT_TRUE(frozen.ranges().empty());
}

// Those of a quantised weight.
TEST(Bucket, FrozenBytesAreABucketThatStaysBytes) {
  NamedParameter bytes = Make("bytes", 100, 1, true);
  bytes.tensor = at::zeros({100}, at::kByte).fill_(7);
  const auto buckets = BucketParameters({Make("f", 5, 1, true), bytes, Make("w", 8, 1)});
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_THAT(NamesOf(buckets[0]), ElementsAre("w"));
  EXPECT_THAT(NamesOf(buckets[1]), ElementsAre("f"));
  EXPECT_THAT(NamesOf(buckets[2]), ElementsAre("bytes"));

  const auto world = comm::MakeLocalWorld(1);
  device::MemoryLedger ledger;
  Context context{
      .groups = {.all = world[0].get(), .gradients = world[0].get(), .shards = world[0].get()},
      .ledger = &ledger};
  context.dtypes.parameter = at::kBFloat16;
  BufferPool pool(context);
  Bucket frozen(context, pool, buckets[2], StorageTier::kHere);
  EXPECT_EQ(frozen.parameters().full().scalar_type(), at::kByte);
  EXPECT_EQ(bytes.tensor.sum().item<std::int64_t>(), 700);
  EXPECT_EQ(ledger.Bytes(device::MemoryUse::kParameters, device::MemoryTier::kHost), 128);
}

}  // namespace
}  // namespace ds::zero
