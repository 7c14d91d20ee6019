// Micro-batches and rates are those of DeepSpeed's own functions (goldens of
// scripts/goldens/make_dynamic_batching_goldens.py), and a loader hands them out.

#include "runtime/data/token_batches.h"

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/base/files.h"
#include "runtime/data/loader.h"
#include "tests/places.h"
#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Numbers = std::vector<std::int64_t>;
using Scaling = config::DynamicBatching::RateScaling;

config::DynamicBatching Batching(const Json& golden) {
  config::DynamicBatching batching{.max_tokens = golden["max_tokens"],
                                   .min_batch_size = golden["min_batch_size"]};
  if (golden["max_batch_size"].is_number()) batching.max_batch_size = golden["max_batch_size"];
  return batching;
}

void ExpectRates(const Json& golden, std::int64_t per_step, std::int64_t samples,
                 std::size_t step) {
  const std::map<std::string, Scaling> scalings = {
      {"linear", Scaling::kLinear}, {"sqrt", Scaling::kRoot}, {"none", Scaling::kNone}};
  for (const auto& [name, scaling] : scalings) {
    EXPECT_DOUBLE_EQ(0.01 * RateFactor(scaling, per_step, samples),
                     golden["rates"][name][step].get<double>());
  }
}

TEST(TokenBatches, AreThoseOfDeepSpeed) {
  const Json goldens =
      Json::parse(*ReadFile(DS_SOURCE_DIR "/tests/unit/data/goldens/token_batches.json"));
  ASSERT_EQ(goldens.size(), 60u);
  for (const Json& golden : goldens) {
    const std::int64_t per_step = golden["per_step"];
    const auto batches =
        TokenBatches::Create(golden["lengths"].get<Numbers>(), golden["order"].get<Numbers>(),
                             Batching(golden), per_step);
    ASSERT_EQ(batches.ok(), golden.contains("batches")) << golden;
    if (!batches.ok()) continue;
    const auto expected = golden["batches"].get<std::vector<Numbers>>();
    ASSERT_EQ(batches->size(), std::ssize(expected)) << golden;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto found = batches->At(static_cast<std::int64_t>(i));
      EXPECT_EQ(Numbers(found.begin(), found.end()), expected[i]) << golden;
    }
    for (std::size_t step = 0; step < golden["sizes"].size(); ++step) {
      const auto part = batches->StepRangeAt(static_cast<std::int64_t>(step) * per_step);
      EXPECT_EQ(part.samples, golden["sizes"][step].get<std::int64_t>());
      ExpectRates(golden, per_step, part.samples, step);
    }
  }
}

TEST(TokenBatches, CountSkippedSamplesAndStartAgain) {
  // 5 is too long; {0, 1}, {2, 3}, {4} and {6} are as full as they get; 7 is the last.
  const Numbers lengths = {4, 4, 4, 4, 7, 9, 6, 3}, order = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto batches = TokenBatches::Create(lengths, order, {.max_tokens = 8}, 3).value();
  EXPECT_EQ(batches.size(), 3);
  EXPECT_EQ(batches.coverage().samples, 5);
  EXPECT_EQ(batches.coverage().too_long, 1);
  EXPECT_EQ(batches.coverage().left_over, 2);
  const auto next = batches.At(4);
  EXPECT_THAT(Numbers(next.begin(), next.end()), ElementsAre(2, 3));
  EXPECT_EQ(batches.StepRangeAt(4).first, 2);
  EXPECT_EQ(batches.StepRangeAt(4).samples, 5);
  EXPECT_THAT(
      TokenBatches::Create(lengths, order, {.max_tokens = 8}, 5).status().message(),
      HasSubstr("4 micro-batches of at most 8 tokens, and a step needs train_batch_size 5"));
}

// Documents of 1 to 8 tokens, one behind the other: token i of document d is 10 * d + i.
class TokenLoaderTest : public ::testing::Test {
 protected:
  TokenLoaderTest() {
    std::vector<std::uint16_t> ids;
    std::string lengths, pointers, documents(8, '\0');
    for (std::int64_t d = 0; d < kDocuments; ++d) {
      Append(static_cast<std::int32_t>(LengthOf(d)), &lengths);
      Append(static_cast<std::int64_t>(2 * ids.size()), &pointers);
      Append(d + 1, &documents);
      for (int i = 0; i < LengthOf(d); ++i) ids.push_back(static_cast<std::uint16_t>(10 * d + i));
    }
    std::string index("MMIDIDX\0\0", 9);
    Append(std::uint64_t{1}, &index);
    Append(std::uint8_t{8}, &index);
    Append(static_cast<std::uint64_t>(kDocuments), &index);
    Append(static_cast<std::uint64_t>(kDocuments + 1), &index);
    folder_.Write("a.idx", index + lengths + pointers + documents);
    path_ = folder_.WriteTokens("a.bin", ids);
  }

  template <typename Number>
  static void Append(Number number, std::string* bytes) {
    bytes->append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  static int LengthOf(std::int64_t document) { return static_cast<int>(1 + document * 5 % 8); }

  std::unique_ptr<Loader> Make(int rank, int world_size, config::DynamicBatching batching) const {
    return Loader::Create(TokenSource::Open({path_}, TokenWidth::kUint16).value(),
                          {.micro_batch = 1,
                           .seq_len = 8,
                           .vocab_size = 1000,
                           .packing = Packing::kNone,
                           .reader = {.index = rank, .count = world_size},
                           .order = {.shuffle = true, .seed = 3},
                           .samples_per_step = 6,
                           .batching = std::move(batching)})
        .value();
  }

  // The samples of so many calls on each rank, in the stream's order.
  static Numbers Read(const std::vector<std::unique_ptr<Loader>>& ranks, int calls) {
    std::map<std::int64_t, Numbers> by_position;
    for (const auto& rank : ranks) {
      for (int i = 0; i < calls; ++i) {
        const TokenBatch batch = rank->Next().value();
        for (const auto& [source, sample] : batch.samples) {
          by_position[batch.position].push_back(sample);
        }
      }
    }
    Numbers all;
    for (const auto& [position, samples] : by_position) {
      all.insert(all.end(), samples.begin(), samples.end());
    }
    return all;
  }

  // The data analyzer's files of so many samples, each of which they count as 6 tokens.
  std::string WriteLengths(const std::string& name, std::int64_t samples) const {
    std::string index("MMIDIDX\0\0", 9), numbers, pointers;
    Append(std::uint64_t{1}, &index);
    Append(std::uint8_t{5}, &index);  // int64
    Append(static_cast<std::uint64_t>(samples), &index);
    Append(std::uint64_t{0}, &index);
    for (std::int64_t i = 0; i < samples; ++i) {
      Append(std::int32_t{1}, &index);
      Append(8 * i, &pointers);
      Append(std::int64_t{6}, &numbers);
    }
    folder_.Write(name + "/seqlen/seqlen_sample_to_metric.idx", index + pointers);
    folder_.Write(name + "/seqlen/seqlen_sample_to_metric.bin", numbers);
    return folder_.path() + "/" + name;
  }

  static constexpr std::int64_t kDocuments = 60;
  const ScratchFolder folder_;
  std::string path_;
};

TEST_F(TokenLoaderTest, BatchesAreAsLongAsTheirLongestSample) {
  const auto loader = Make(0, 1, {.max_tokens = 12});
  for (int i = 0; i < 50; ++i) {
    const TokenBatch batch = loader->Next().value();
    std::int64_t tokens = 0, longest = 0;
    ASSERT_EQ(batch.inputs.size(0), std::ssize(batch.samples));
    for (std::int64_t row = 0; row < std::ssize(batch.samples); ++row) {
      const std::int64_t sample = batch.samples[static_cast<std::size_t>(row)].sample;
      const std::int64_t length = LengthOf(sample);
      EXPECT_EQ(batch.inputs[row][0].item<std::int64_t>(), 10 * sample);
      EXPECT_EQ(batch.labels[row].ne(kIgnoredLabel).sum().item<std::int64_t>(), length - 1);
      tokens += length;
      longest = std::max(longest, length);
    }
    EXPECT_LE(tokens, 12);
    EXPECT_EQ(batch.inputs.size(1), longest);
  }
}

TEST_F(TokenLoaderTest, ResumesWhereItWasSavedOnAnotherNumberOfRanks) {
  const config::DynamicBatching batching{.max_tokens = 12};
  std::vector<std::unique_ptr<Loader>> one, two, three;
  one.push_back(Make(0, 1, batching));
  for (int rank = 0; rank < 2; ++rank) two.push_back(Make(rank, 2, batching));
  for (int rank = 0; rank < 3; ++rank) three.push_back(Make(rank, 3, batching));
  const Numbers full = Read(one, 60);
  Numbers cut = Read(two, 15);  // 5 steps
  for (const auto& rank : three) ASSERT_TRUE(rank->LoadState(two[0]->State()).ok());
  const Numbers rest = Read(three, 10);
  cut.insert(cut.end(), rest.begin(), rest.end());
  EXPECT_EQ(cut, full);
  const auto other = Make(0, 1, {.max_tokens = 13});
  EXPECT_THAT(other->LoadState(two[0]->State()).message(), HasSubstr("dynamic_batching"));
}

TEST_F(TokenLoaderTest, SamplesComeByLengthOrAsTheAnalyzerCountsThem) {
  using Picking = config::DynamicBatching::Picking;
  const auto lengths_of = [](Loader& loader) {
    Numbers lengths;
    const TokenBatch batch = loader.Next().value();
    for (const auto& [source, sample] : batch.samples) {
      lengths.push_back(LengthOf(sample));
    }
    return lengths;
  };
  const auto ascending = Make(0, 1, {.max_tokens = 12, .picking = Picking::kLength});
  EXPECT_THAT(lengths_of(*ascending), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 2, 2));
  const config::DynamicBatching counted{.max_tokens = 12,
                                        .metrics_path = WriteLengths("maps", kDocuments)};
  const auto pairs = Make(0, 1, counted);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(pairs->Next().value().inputs.size(0), 2);
}

TEST_F(TokenLoaderTest, TheAnalyzersLengthsMayBeThoseOfHeldOutSamplesToo) {
  const auto make = [&](std::int64_t counted) {
    const std::string maps = WriteLengths("maps" + std::to_string(counted), counted);
    return Loader::Create(TokenSource::Open({path_}, TokenWidth::kUint16).value(),
                          {.micro_batch = 1,
                           .seq_len = 8,
                           .vocab_size = 1000,
                           .packing = Packing::kNone,
                           .held_out = 0.5,
                           .samples_per_step = 6,
                           .batching = {{.max_tokens = 12, .metrics_path = maps}}});
  };
  for (const std::int64_t counted : {kDocuments, kDocuments / 2}) {
    const auto loader = make(counted);
    ASSERT_TRUE(loader.ok()) << loader.status().message();
    EXPECT_EQ((*loader)->batches()->coverage().samples, 24);
    EXPECT_EQ((*loader)->Next().value().inputs.size(0), 2);
  }
  EXPECT_THAT(make(kDocuments - 1).status().message(),
              HasSubstr("has 59 lengths in 59 rows, and the data 30 samples"));
}

}  // namespace
}  // namespace ds::data
