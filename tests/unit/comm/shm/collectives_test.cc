// Every collective, for every world size and element type, against values computed one by one.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/unit/comm/net/thread_world.h"
#include "tests/unit/comm/shm/thread_group.h"

namespace ds::comm {
namespace {

// bf16: the upper half of an fp32, exact for the small integers used here.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(int value)
      : bits(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >>
                                        16)) {}
  // As numbers: a product of zero and a negative value is -0, which equals 0.
  friend bool operator==(BFloat16 a, BFloat16 b) { return a.ToFloat() == b.ToFloat(); }
  float ToFloat() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

template <typename T>
constexpr ElementType TypeOf();
template <>
constexpr ElementType TypeOf<float>() {
  return ElementType::kFloat32;
}
template <>
constexpr ElementType TypeOf<double>() {
  return ElementType::kFloat64;
}
template <>
constexpr ElementType TypeOf<BFloat16>() {
  return ElementType::kBFloat16;
}
template <>
constexpr ElementType TypeOf<std::int8_t>() {
  return ElementType::kInt8;
}
template <>
constexpr ElementType TypeOf<std::uint8_t>() {
  return ElementType::kUInt8;
}
template <>
constexpr ElementType TypeOf<std::int16_t>() {
  return ElementType::kInt16;
}
template <>
constexpr ElementType TypeOf<std::int32_t>() {
  return ElementType::kInt32;
}
template <>
constexpr ElementType TypeOf<std::int64_t>() {
  return ElementType::kInt64;
}

// Small enough that sums over eight ranks and products over four fit an int8.
template <typename T>
int Value(int rank, std::size_t index) {
  const int lowest = std::is_unsigned_v<T> ? 0 : -1;
  return static_cast<int>((index * 7 + static_cast<std::size_t>(rank) * 3) % 5) + lowest;
}

template <typename T>
std::vector<T> Values(int rank, std::size_t count, std::size_t offset = 0) {
  std::vector<T> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(Value<T>(rank, offset + i)));
  return values;
}

template <typename T>
int Reduced(int size, std::size_t index, ReduceOp op) {
  int result = Value<T>(0, index);
  for (int rank = 1; rank < size; ++rank) {
    const int value = Value<T>(rank, index);
    if (op == ReduceOp::kSum) result += value;
    if (op == ReduceOp::kProduct) result *= value;
    if (op == ReduceOp::kMax) result = std::max(result, value);
    if (op == ReduceOp::kMin) result = std::min(result, value);
  }
  return result;
}

template <typename T>
std::vector<T> AllReduced(int size, std::size_t count, ReduceOp op, std::size_t offset = 0) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<T>(Reduced<T>(size, offset + i, op)));
  }
  return values;
}

template <typename T>
std::byte* Bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}
template <typename T>
const std::byte* Bytes(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

// Pointers to consecutive parts of `values`.
template <typename T>
std::vector<std::byte*> Parts(std::vector<T>& values, int parts) {
  std::vector<std::byte*> pointers;
  const std::size_t each = values.size() / static_cast<std::size_t>(parts);
  for (int i = 0; i < parts; ++i) pointers.push_back(Bytes(values) + i * each * sizeof(T));
  return pointers;
}
template <typename T>
std::vector<const std::byte*> ReadOnlyParts(std::vector<T>& values, int parts) {
  const std::vector<std::byte*> pointers = Parts(values, parts);
  return {pointers.begin(), pointers.end()};
}

constexpr int kWorldSizes[] = {1, 2, 3, 4, 8};
// Ranks on each of several hosts.
const std::vector<std::vector<int>> kWorlds = {{1, 1}, {2, 2}, {1, 1, 1}, {2, 1}, {1, 3, 2}};
// Nothing, less than a cache line, odd, one chunk of int8 and one more, several chunks.
constexpr std::size_t kCounts[] = {0, 1, 5, 1023, 16385, 50001};

template <typename T>
class CollectivesTest : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, BFloat16, std::int8_t, std::uint8_t,
                                      std::int16_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(CollectivesTest, ElementTypes);

// Runs `body(group, count)` for every world size, on one host and on several, and count, in one
// group per world size, so that the staging buffers also rotate from one collective to the next.
void ForEachSize(const std::function<void(CpuGroup&, std::size_t)>& body) {
  for (const int size : kWorldSizes) {
    RunGroup(SmallChunks(size), [&](CpuGroup& group) {
      for (const std::size_t count : kCounts) body(group, count);
    });
  }
  for (const std::vector<int>& ranks_on_hosts : kWorlds) {
    RunWorld(ranks_on_hosts, [&](CpuGroup& group) {
      for (const std::size_t count : kCounts) body(group, count);
    });
  }
}

std::string Where(const CpuGroup& group, std::size_t count) {
  return "rank " + std::to_string(group.rank()) + " of " + std::to_string(group.size()) + ", " +
         std::to_string(count) + " elements";
}

TYPED_TEST(CollectivesTest, AllReduce) {
  using T = TypeParam;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
    ForEachSize([&](CpuGroup& group, std::size_t count) {
      if (op == ReduceOp::kProduct && group.size() > 3) return;  // would overflow an int8
      std::vector<T> data = Values<T>(group.rank(), count);
      ASSERT_TRUE(group.AllReduce(Bytes(data), {count, TypeOf<T>()}, op).ok());
      EXPECT_EQ(data, AllReduced<T>(group.size(), count, op)) << Where(group, count);
    });
  }
}

TYPED_TEST(CollectivesTest, ReduceChangesOnlyTheRoot) {
  using T = TypeParam;
  ForEachSize([](CpuGroup& group, std::size_t count) {
    const int root = group.size() - 1;
    std::vector<T> data = Values<T>(group.rank(), count);
    ASSERT_TRUE(group.Reduce(Bytes(data), {count, TypeOf<T>()}, ReduceOp::kSum, root).ok());
    EXPECT_EQ(data, group.rank() == root ? AllReduced<T>(group.size(), count, ReduceOp::kSum)
                                         : Values<T>(group.rank(), count))
        << Where(group, count);
  });
}

TYPED_TEST(CollectivesTest, ReduceScatter) {
  using T = TypeParam;
  ForEachSize([](CpuGroup& group, std::size_t count) {
    const auto ranks = static_cast<std::size_t>(group.size());
    std::vector<T> input = Values<T>(group.rank(), count * ranks);
    std::vector<T> output(count);
    ASSERT_TRUE(group
                    .ReduceScatter(Bytes(output), ReadOnlyParts(input, group.size()),
                                   {count, TypeOf<T>()}, ReduceOp::kSum)
                    .ok());
    EXPECT_EQ(output, AllReduced<T>(group.size(), count, ReduceOp::kSum, count * group.rank()))
        << Where(group, count);
    EXPECT_EQ(input, Values<T>(group.rank(), count * ranks));
  });
}

TYPED_TEST(CollectivesTest, AllGather) {
  using T = TypeParam;
  ForEachSize([](CpuGroup& group, std::size_t count) {
    const std::vector<T> input = Values<T>(group.rank(), count);
    std::vector<T> output(count * static_cast<std::size_t>(group.size()));
    ASSERT_TRUE(
        group.AllGather(Parts(output, group.size()), Bytes(input), {count, TypeOf<T>()}).ok());
    std::vector<T> expected;
    for (int rank = 0; rank < group.size(); ++rank) {
      const std::vector<T> part = Values<T>(rank, count);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(output, expected) << Where(group, count);
  });
}

TYPED_TEST(CollectivesTest, Broadcast) {
  using T = TypeParam;
  ForEachSize([](CpuGroup& group, std::size_t count) {
    for (int root = 0; root < group.size(); ++root) {
      std::vector<T> data = Values<T>(group.rank(), count);
      ASSERT_TRUE(group.Broadcast(Bytes(data), {count, TypeOf<T>()}, root).ok());
      EXPECT_EQ(data, Values<T>(root, count)) << Where(group, count);
    }
  });
}

TYPED_TEST(CollectivesTest, GatherAndScatter) {
  using T = TypeParam;
  ForEachSize([](CpuGroup& group, std::size_t count) {
    const int root = group.size() / 2;
    const bool is_root = group.rank() == root;
    const std::vector<T> mine = Values<T>(group.rank(), count);
    std::vector<T> all(is_root ? count * static_cast<std::size_t>(group.size()) : 0);
    ASSERT_TRUE(
        group.Gather(Parts(all, group.size()), Bytes(mine), {count, TypeOf<T>()}, root).ok());
    for (int rank = 0; is_root && rank < group.size(); ++rank) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(count) * rank;
      const std::vector<T> part(begin, begin + static_cast<std::ptrdiff_t>(count));
      EXPECT_EQ(part, Values<T>(rank, count)) << Where(group, count);
    }
    std::vector<T> back(count);
    ASSERT_TRUE(
        group.Scatter(Bytes(back), ReadOnlyParts(all, group.size()), {count, TypeOf<T>()}, root)
            .ok());
    EXPECT_EQ(back, mine) << Where(group, count);
  });
}

// Rank s sends s + d + count elements to rank d.
TYPED_TEST(CollectivesTest, AllToAllOfDifferentLengths) {
  using T = TypeParam;
  ForEachSize([](CpuGroup& group, std::size_t count) {
    std::vector<std::vector<T>> outgoing;
    std::vector<std::vector<T>> incoming;
    std::vector<std::byte*> outputs;
    std::vector<const std::byte*> inputs;
    std::vector<std::uint64_t> counts;
    for (int peer = 0; peer < group.size(); ++peer) {
      counts.push_back(count + static_cast<std::size_t>(group.rank() + peer));
      outgoing.push_back(Values<T>(group.rank(), counts.back(), static_cast<std::size_t>(peer)));
      incoming.emplace_back(counts.back());
    }
    for (auto& part : outgoing) inputs.push_back(Bytes(part));
    for (auto& part : incoming) outputs.push_back(Bytes(part));
    ASSERT_TRUE(group
                    .AllToAll({.outputs = outputs,
                               .output_counts = counts,
                               .inputs = inputs,
                               .input_counts = counts,
                               .type = TypeOf<T>()})
                    .ok());
    for (int peer = 0; peer < group.size(); ++peer) {
      EXPECT_EQ(incoming[peer],
                Values<T>(peer, counts[peer], static_cast<std::size_t>(group.rank())))
          << Where(group, count);
    }
  });
}

// Each rank gives 2^-24 or 1: in fp32 the order of additions decides whether small values survive.
void ExpectSumsInRankOrder(CpuGroup& group) {
  constexpr std::size_t kEach = 10007;
  const std::size_t count = kEach * static_cast<std::size_t>(group.size());
  const auto value = [](int rank, std::size_t i) {
    return (static_cast<std::size_t>(rank) + i) % 3 == 0 ? 1.0f
                                                         : 0x1p-24f * static_cast<float>(1 + rank);
  };
  std::vector<float> data(count);
  std::vector<float> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = value(group.rank(), i);
    expected[i] = value(0, i);
    for (int rank = 1; rank < group.size(); ++rank) expected[i] += value(rank, i);
  }
  std::vector<float> part(kEach);
  ASSERT_TRUE(group
                  .ReduceScatter(Bytes(part), ReadOnlyParts(data, group.size()),
                                 {kEach, ElementType::kFloat32}, ReduceOp::kSum)
                  .ok());
  ASSERT_TRUE(group.AllReduce(Bytes(data), {count, ElementType::kFloat32}, ReduceOp::kSum).ok());
  EXPECT_EQ(data, expected);
  const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(kEach) * group.rank();
  EXPECT_TRUE(std::equal(part.begin(), part.end(), begin));
}

TEST(DeterminismTest, AllReduceAndReduceScatterAddInRankOrder) {
  for (const int size : {2, 3, 4, 8}) RunGroup(SmallChunks(size), ExpectSumsInRankOrder);
  for (const std::vector<int>& ranks_on_hosts : kWorlds) {
    RunWorld(ranks_on_hosts, ExpectSumsInRankOrder);
  }
}

// Halves of sums are lost when bf16 is rounded once for every host: 256 + 1 + 1 is 258, but 256 + 1
// rounds to 256.
TEST(DeterminismTest, BFloat16IsRoundedOnceHoweverManyHosts) {
  for (const std::vector<int>& ranks_on_hosts : {std::vector{1, 1, 1}, std::vector{2, 1}}) {
    RunWorld(ranks_on_hosts, [](CpuGroup& group) {
      std::vector<BFloat16> data = {BFloat16(group.rank() == 0 ? 256 : 1)};
      ASSERT_TRUE(group.AllReduce(Bytes(data), {1, ElementType::kBFloat16}, ReduceOp::kSum).ok());
      EXPECT_EQ(data[0].ToFloat(), 258);
    });
  }
}

TEST(AliasTest, OutputsMayBeTheOwnPartOfInputs) {
  constexpr std::size_t kEach = 9001;
  const auto expect_reduced = [](CpuGroup& group) {
    std::vector<int> full = Values<int>(group.rank(), 3 * kEach);
    const std::vector<std::byte*> parts = Parts(full, 3);
    ASSERT_TRUE(group
                    .ReduceScatter(parts[group.rank()], ReadOnlyParts(full, 3),
                                   {kEach, ElementType::kInt32}, ReduceOp::kSum)
                    .ok());
    ASSERT_TRUE(group.AllGather(parts, parts[group.rank()], {kEach, ElementType::kInt32}).ok());
    EXPECT_EQ(full, AllReduced<int>(3, 3 * kEach, ReduceOp::kSum));
  };
  RunGroup(SmallChunks(3), expect_reduced);
  RunWorld({1, 1, 1}, expect_reduced);
  RunWorld({1, 2}, expect_reduced);
}

}  // namespace
}  // namespace ds::comm
