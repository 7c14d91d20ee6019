#include "runtime/data/prefetching_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <numeric>
#include <set>

#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

using ::testing::HasSubstr;

// Gives batches of 0, 1, 2, ... tokens; fails once at each place in `failing`, throws in
// `throwing`.
class ScriptedStream : public BatchStream {
 public:
  struct Script {
    std::set<std::int64_t> failing = {}, throwing = {};
  };
  explicit ScriptedStream(Script script) : script_(std::move(script)) {}

  StatusOr<TokenBatch> Next() override {
    ++asked;
    asked.notify_all();
    if (script_.failing.erase(position_) != 0) {
      return DataLossError("no batch " + std::to_string(position_));
    }
    if (script_.throwing.erase(position_) != 0) throw std::bad_alloc();
    return TokenBatch{.tokens = position_++};
  }
  std::string_view state_name() const override { return "scripted"; }
  void AddShards(std::vector<checkpoint::TensorShard>*) override {}
  nlohmann::json State() const override { return {{"place", position_}}; }
  Status LoadState(const nlohmann::json& state) override {
    if (!state.contains("place")) return DataLossError("no place");
    position_ = state["place"];
    return OkStatus();
  }

  std::atomic<int> asked = 0;

 private:
  Script script_;
  std::int64_t position_ = 0;
};

struct Prefetched {
  explicit Prefetched(ScriptedStream::Script script = {}, std::size_t depth = 2) {
    auto owned = std::make_unique<ScriptedStream>(std::move(script));
    stream = owned.get();
    loader = std::make_unique<PrefetchingLoader>(std::move(owned), depth);
  }
  std::int64_t NextTokens() { return loader->Next().value().tokens; }
  std::int64_t position() const { return loader->State()["place"]; }
  // Waits for the thread to have asked so often.
  void AwaitAsked(int times) const {
    for (int asked = stream->asked; asked < times; asked = stream->asked) stream->asked.wait(asked);
  }

  ScriptedStream* stream;
  std::unique_ptr<PrefetchingLoader> loader;
};

TEST(PrefetchingLoader, ReadsAheadAndReportsTheDeliveredPosition) {
  Prefetched ahead;
  EXPECT_EQ(ahead.stream->asked, 0) << "a state may still be loaded";
  EXPECT_EQ(ahead.position(), 0);
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(ahead.NextTokens(), i);
    EXPECT_EQ(ahead.position(), i + 1);
    EXPECT_LE(ahead.stream->asked, i + 1 + 3) << "two wait, and one may be on its way";
  }
  ahead.AwaitAsked(20 + 2);
}

TEST(PrefetchingLoader, HandsOutErrorsInTheirPlace) {
  Prefetched ahead({.failing = {1, 3}, .throwing = {4}});
  EXPECT_EQ(ahead.NextTokens(), 0);
  EXPECT_THAT(ahead.loader->Next().status().message(), HasSubstr("no batch 1"));
  EXPECT_EQ(ahead.position(), 1);
  EXPECT_EQ(ahead.NextTokens(), 1) << "the stream is asked again";
  EXPECT_EQ(ahead.NextTokens(), 2);
  EXPECT_FALSE(ahead.loader->Next().ok());
  EXPECT_EQ(ahead.NextTokens(), 3);
  EXPECT_THROW(static_cast<void>(ahead.loader->Next()), std::bad_alloc);
  EXPECT_EQ(ahead.NextTokens(), 4);
}

TEST(PrefetchingLoader, LoadingAStateDiscardsPrefetchedBatches) {
  Prefetched ahead;
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(ahead.NextTokens(), i);
  ahead.AwaitAsked(5);
  EXPECT_TRUE(ahead.loader->LoadState({{"place", 40}}).ok());
  EXPECT_EQ(ahead.position(), 40);
  EXPECT_EQ(ahead.NextTokens(), 40);
  EXPECT_EQ(ahead.NextTokens(), 41);
  ahead.AwaitAsked(5 + 4);
  EXPECT_THAT(ahead.loader->LoadState({{"other", 1}}).message(), HasSubstr("no place"));
  EXPECT_EQ(ahead.NextTokens(), 42) << "as if nothing had been asked";
}

TEST(PrefetchingLoader, ReportsItsWaitOnce) {
  Prefetched ahead;
  ahead.NextTokens();
  EXPECT_GT(ahead.loader->TakeWaited().count(), 0.0);
  EXPECT_EQ(ahead.loader->TakeWaited().count(), 0.0);
}

TEST(PrefetchingLoader, EndsWithUnusedBatches) {
  for (const std::size_t depth : {1U, 3U}) {
    Prefetched ahead({}, depth);
    EXPECT_EQ(ahead.NextTokens(), 0);
    ahead.AwaitAsked(static_cast<int>(depth) + 1);
  }
  Prefetched failed({.failing = {1}});
  EXPECT_EQ(failed.NextTokens(), 0);
  failed.AwaitAsked(2);
}

TEST(PrefetchingLoader, OfALoaderGivesItsBatchesAndSavesItsState) {
  const ScratchFolder folder;
  std::vector<std::uint16_t> ids(401);
  std::iota(ids.begin(), ids.end(), std::uint16_t{0});
  const auto make = [&] {
    auto source = TokenSource::Open({folder.WriteTokens("a.bin", ids)}, TokenWidth::kUint16);
    return Loader::Create(*std::move(source),
                          {.micro_batch = 3, .seq_len = 4, .vocab_size = 1000, .order = {}})
        .value();
  };
  const auto plain = make();
  PrefetchingLoader ahead(make(), /*depth=*/2);
  EXPECT_EQ(ahead.state_name(), plain->state_name());
  for (int i = 0; i < 50; ++i) {
    const TokenBatch expected = plain->Next().value(), batch = ahead.Next().value();
    EXPECT_TRUE(batch.inputs.equal(expected.inputs)) << i;
    EXPECT_TRUE(batch.labels.equal(expected.labels)) << i;
    EXPECT_EQ(ahead.State(), plain->State()) << i;
  }
}

}  // namespace
}  // namespace ds::data
