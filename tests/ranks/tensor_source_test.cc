// State that has no tensor: sources that make their bytes up, count what is asked of them, and
// fail.

#include "runtime/checkpoint/tensor_source.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint_format/catalog.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::RunRanks;
using ds::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// More than two ranges of what is asked for at once, and a bit.
constexpr std::int64_t kElements = 2 * kMostBytesAtOnce / 2 + kMostBytesAtOnce / 4 + 7;
constexpr std::int64_t kNever = -1;

std::int16_t ValueAt(std::int64_t index) { return static_cast<std::int16_t>(index * 31 % 32749); }

// 16-bit elements [start, start + count) of a tensor that nobody has in memory.
class MadeUpSource : public TensorSource {
 public:
  MadeUpSource(std::int64_t start, std::int64_t count) : start_(start), count_(count) {}

  std::int64_t count() const override { return count_; }
  at::ScalarType dtype() const override { return at::kShort; }

  Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) override {
    DS_RETURN_IF_ERROR(Note(first, count));
    std::vector<std::int16_t> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = ExpectedAt(first, i);
    return take(std::as_bytes(std::span(values)));
  }

  Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) override {
    DS_RETURN_IF_ERROR(Note(first, count));
    std::vector<std::int16_t> values(static_cast<std::size_t>(count));
    DS_RETURN_IF_ERROR(fill(std::as_writable_bytes(std::span(values))));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == ExpectedAt(first, i)) ++right_;
    }
    return OkStatus();
  }

  void FailAt(std::int64_t call) { fail_at_ = call; }
  std::int64_t calls() const { return calls_; }
  std::int64_t most_bytes() const { return most_bytes_; }
  std::int64_t elements() const { return elements_; }
  std::int64_t right() const { return right_; }  // of the values written

 private:
  std::int16_t ExpectedAt(std::int64_t first, std::size_t i) const {
    return ValueAt(start_ + first + static_cast<std::int64_t>(i));
  }

  Status Note(std::int64_t first, std::int64_t count) {
    EXPECT_LE(first + count, count_);
    most_bytes_ = std::max(most_bytes_, count * item_size());
    elements_ += count;
    return calls_++ == fail_at_ ? UnavailableError("/swap/exp_avg: the disk is gone") : OkStatus();
  }

  const std::int64_t start_;
  const std::int64_t count_;
  std::int64_t fail_at_ = kNever;
  std::int64_t calls_ = 0;
  std::int64_t most_bytes_ = 0;
  std::int64_t elements_ = 0;
  std::int64_t right_ = 0;
};

// A tensor that is cut among the ranks, one element more on each than on the next.
class SourceSlice : public Stateful {
 public:
  explicit SourceSlice(const comm::Communicator& world) {
    const Share own = ShareOf(kElements, world.rank(), world.size());
    start_ = own.first;
    source_ = std::make_shared<MadeUpSource>(own.first, own.count);
  }

  std::string_view state_name() const override { return "engine"; }
  void AddShards(std::vector<TensorShard>* shards) override {
    shards->push_back({.name = "weight/exp_avg",
                       .placement = {.global_shape = {kElements}},
                       .flat_start = start_,
                       .source = source_});
  }
  nlohmann::json State() const override { return nlohmann::json::object(); }
  Status LoadState(const nlohmann::json&) override { return OkStatus(); }

  MadeUpSource& source() { return *source_; }

 private:
  std::int64_t start_ = 0;
  std::shared_ptr<MadeUpSource> source_;
};

Status Save(const fs::path& root, std::int64_t step, SourceSlice& part, comm::Communicator& world) {
  Stateful* const parts[] = {&part};
  return SaveCheckpoint({.root = root, .step = step}, parts, world).status();
}

Status Load(const fs::path& directory, SourceSlice& part, comm::Communicator& world) {
  Stateful* const parts[] = {&part};
  return LoadCheckpoint(directory, parts, world);
}

TEST(TensorSource, LimitsTheSizeOfEachTransfer) {
  const TemporaryFolder folder;
  RunRanks(1, [&](comm::Communicator& world) {
    SourceSlice part(world);
    EXPECT_TRUE(Save(folder.path(), 1, part, world).ok());
    EXPECT_EQ(part.source().elements(), kElements) << "each of them once";
    EXPECT_EQ(part.source().most_bytes(), kMostBytesAtOnce);
    EXPECT_EQ(part.source().calls(), 3);
  });
  // What the ranks want begins and ends inside the stored shard's chunks.
  RunRanks(3, [&](comm::Communicator& world) {
    SourceSlice part(world);
    EXPECT_TRUE(Load(folder.path() / "step-1", part, world).ok());
    EXPECT_EQ(part.source().right(), part.source().count());
    EXPECT_EQ(part.source().elements(), part.source().count());
    EXPECT_LE(part.source().most_bytes(), kMostBytesAtOnce);
  });
}

TEST(TensorSource, ThatCannotBeReadFailsTheSaveByNameAndLeavesNothing) {
  const TemporaryFolder folder;
  RunRanks(2, [&](comm::Communicator& world) {
    SourceSlice part(world);
    EXPECT_TRUE(Save(folder.path(), 1, part, world).ok());
    // The first range is on the disk by then.
    if (world.rank() == 1) part.source().FailAt(part.source().calls() + 1);
    const Status saved = Save(folder.path(), 2, part, world);
    EXPECT_EQ(saved.code(), StatusCode::kUnavailable);
    EXPECT_THAT(saved.message(),
                HasSubstr("rank 1: tensor 'weight/exp_avg': /swap/exp_avg: the disk is gone"));
  });
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(".lock", "step-1", "latest"));
  EXPECT_EQ(FindNewestGood(folder.path()).value().found->step, 1);
}

TEST(TensorSource, ThatCannotBeWrittenFailsTheLoadByName) {
  const TemporaryFolder folder;
  RunRanks(2, [&](comm::Communicator& world) {
    SourceSlice part(world);
    EXPECT_TRUE(Save(folder.path(), 1, part, world).ok());
    if (world.rank() == 0) part.source().FailAt(part.source().calls());
    EXPECT_THAT(Load(folder.path() / "step-1", part, world).message(),
                AllOf(HasSubstr("rank 0: "), HasSubstr("tensor 'weight/exp_avg': /swap/exp_avg")));
  });
}

TEST(TensorSource, OfATensorIsItsMemory) {
  const at::Tensor tensor = at::arange(10, at::kFloat);
  const std::shared_ptr<TensorSource> view = SourceOf(tensor.narrow(0, 2, 6));
  TensorSource& source = *view;
  EXPECT_TRUE(ReadAll(source).value().equal(at::arange(2, 8, at::kFloat)));
  EXPECT_TRUE(source
                  .Read(1, 2,
                        [&](std::span<const std::byte> bytes) {
                          EXPECT_EQ(static_cast<const void*>(bytes.data()),
                                    tensor.const_data_ptr<float>() + 3)
                              << "nothing is copied";
                          EXPECT_EQ(bytes.size(), 8U);
                          return OkStatus();
                        })
                  .ok());
  EXPECT_TRUE(WriteAll(at::arange(6).mul(10), source).ok());
  EXPECT_EQ(tensor[3].item<float>(), 10.0F);
  EXPECT_EQ(tensor[8].item<float>(), 8.0F) << "behind the range";
}

}  // namespace
}  // namespace ds::checkpoint
