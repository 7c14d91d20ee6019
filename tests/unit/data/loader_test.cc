#include "runtime/data/loader.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>

#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

using ::testing::HasSubstr;

class LoaderTest : public ::testing::Test {
 protected:
  // Tokens 0, 1, 2, ...: a token's id is its position.
  TokenSource Counting(int tokens) const {
    std::vector<std::uint16_t> ids(static_cast<std::size_t>(tokens));
    std::iota(ids.begin(), ids.end(), std::uint16_t{0});
    return TokenSource::Open({folder_.WriteTokens("a.bin", ids)}, TokenWidth::kUint16).value();
  }

  std::unique_ptr<Loader> Make(int tokens, const LoaderOptions& options) const {
    return Loader::Create(Counting(tokens), options).value();
  }

  ScratchFolder folder_;
};

LoaderOptions Plain(std::int64_t micro_batch, int rank = 0, int world_size = 1) {
  return {.micro_batch = micro_batch,
          .seq_len = 4,
          .vocab_size = 1000,
          .reader = {.index = rank, .count = world_size},
          .order = {.shuffle = false}};
}

std::vector<std::int64_t> FirstTokens(const TokenBatch& batch) {
  std::vector<std::int64_t> first;
  for (std::int64_t row = 0; row < batch.inputs.size(0); ++row) {
    first.push_back(batch.inputs[row][0].item<std::int64_t>());
  }
  return first;
}

TEST_F(LoaderTest, LabelsAreTheInputsShiftedByOne) {
  const TokenBatch batch = Make(100, Plain(3))->Next().value();
  EXPECT_EQ(batch.inputs.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_TRUE(at::equal(batch.labels, batch.inputs + 1));
  EXPECT_EQ(FirstTokens(batch), (std::vector<std::int64_t>{0, 4, 8}));
  EXPECT_EQ(batch.tokens, 12);
}

TEST_F(LoaderTest, RanksTakeTheirSharesOfTheDefinedOrder) {
  // Micro-step m on rank r of W takes samples (m*W + r)*B + 0..B-1.
  for (int rank = 0; rank < 3; ++rank) {
    const auto loader = Make(1000, Plain(2, rank, 3));
    for (std::int64_t step = 0; step < 4; ++step) {
      const std::int64_t sample = (step * 3 + rank) * 2;
      EXPECT_EQ(FirstTokens(loader->Next().value()),
                (std::vector<std::int64_t>{sample * 4, sample * 4 + 4}));
    }
  }
}

TEST_F(LoaderTest, ShuffledOrderIsTheSameForEveryWorldSize) {
  const auto stream = [&](int world_size) {
    std::vector<std::unique_ptr<Loader>> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      LoaderOptions options = Plain(4 / world_size, rank, world_size);
      options.order = {.shuffle = true, .seed = 9};
      ranks.push_back(Make(401, options));
    }
    std::vector<at::Tensor> rows;
    for (int step = 0; step < 60; ++step) {  // more than two passes of 100 samples
      for (const auto& rank : ranks) rows.push_back(rank->Next().value().inputs);
    }
    return at::cat(rows);
  };
  EXPECT_TRUE(at::equal(stream(1), stream(2)));
  EXPECT_TRUE(at::equal(stream(1), stream(4)));
}

TEST_F(LoaderTest, DataWraps) {
  const auto loader = Make(9, Plain(1));  // two samples
  EXPECT_EQ(loader->samples_per_epoch(), 2);
  for (const std::int64_t first : {0, 4, 0, 4}) {
    EXPECT_EQ(FirstTokens(loader->Next().value()), (std::vector<std::int64_t>{first}));
  }
}

TEST_F(LoaderTest, HoldsOutTheEndOfTheDataFromTraining) {
  LoaderOptions options = Plain(1);
  options.held_out = 0.3;
  const auto trained = Make(41, options);  // ten samples
  EXPECT_EQ(trained->samples_per_epoch(), 7);
  options.takes_held_out = true;
  const auto held_out = Make(41, options);
  EXPECT_EQ(held_out->samples_per_epoch(), 3);
  for (const std::int64_t sample : {0, 1, 2, 3, 4, 5, 6, 0}) {
    EXPECT_EQ(FirstTokens(*trained->Next()), (std::vector<std::int64_t>{4 * sample}));
  }
  for (const std::int64_t sample : {7, 8, 9, 7}) {
    EXPECT_EQ(FirstTokens(*held_out->Next()), (std::vector<std::int64_t>{4 * sample}));
  }
  options.held_out = 0.99;
  EXPECT_THAT(Loader::Create(Counting(41), options).status().message(),
              HasSubstr("and none would be left to train on"));
}

// Five samples on two ranks: of the last turn only the first rank's first row counts.
TEST_F(LoaderTest, OfOnePassEverySampleCountsOnce) {
  std::vector<std::int64_t> in_loss;
  for (int rank = 0; rank < 2; ++rank) {
    LoaderOptions options = Plain(2, rank, 2);
    options.once = true;
    const auto loader = Make(21, options);
    EXPECT_EQ(loader->batches_per_epoch(), 2);
    const auto read = [&] {
      for (int i = 0; i < 2; ++i) {
        const TokenBatch batch = *loader->Next();
        for (std::int64_t row = 0; row < 2; ++row) {
          const auto label = batch.labels[row][0].item<std::int64_t>();
          EXPECT_EQ(batch.labels[row].eq(kIgnoredLabel).all().item<bool>(), label == kIgnoredLabel);
          if (label != kIgnoredLabel) in_loss.push_back(label);
        }
      }
    };
    read();
    EXPECT_EQ(loader->CountLabels().value(), rank == 0 ? 12 : 8);
    read();
  }
  EXPECT_THAT(in_loss, ::testing::UnorderedElementsAre(1, 1, 5, 5, 9, 9, 13, 13, 17, 17));
}

// Tokens from 0 on, and from 500 on: a token says whose it is.
class BlendedLoaderTest : public LoaderTest {
 protected:
  std::unique_ptr<Loader> Make(const LoaderOptions& options) const {
    std::vector<TokenSource> sources;
    sources.push_back(Counting(21));  // five samples
    std::vector<std::uint16_t> ids(13);
    std::iota(ids.begin(), ids.end(), std::uint16_t{500});  // three
    sources.push_back(
        TokenSource::Open({folder_.WriteTokens("b.bin", ids)}, TokenWidth::kUint16).value());
    return Loader::Create(std::move(sources), options).value();
  }

  static LoaderOptions Blended(std::int64_t micro_batch, int rank = 0, int world_size = 1) {
    LoaderOptions options = Plain(micro_batch, rank, world_size);
    options.weights = {1.0, 3.0};
    return options;
  }
};

TEST_F(BlendedLoaderTest, SourcesComeByWeightEachInItsOrder) {
  const auto loader = Make(Blended(8));
  EXPECT_EQ(loader->samples_per_epoch(), 8);
  EXPECT_EQ(loader->CountSamples(), (std::vector<std::int64_t>{5, 3}));
  EXPECT_EQ(FirstTokens(*loader->Next()),
            (std::vector<std::int64_t>{500, 504, 0, 508, 500, 504, 4, 508}));
}

TEST_F(BlendedLoaderTest, EverySourceIsShuffledAsItWouldBeAlone) {
  const auto stream = [](Loader& loader, bool second) {
    std::vector<std::int64_t> taken;
    for (int i = 0; i < 40; ++i) {
      const std::int64_t token = FirstTokens(*loader.Next())[0];
      if ((token >= 500) == second) taken.push_back(token);
    }
    return taken;
  };
  LoaderOptions options = Blended(1);
  options.order = {.shuffle = true, .seed = 7};
  const auto blended = Make(options);
  LoaderOptions alone = options;
  alone.weights.clear();
  const auto first = LoaderTest::Make(21, alone);
  const std::vector<std::int64_t> taken = stream(*blended, false);
  const std::vector<std::int64_t> full = stream(*first, false);
  EXPECT_EQ(taken.size(), 10u);
  EXPECT_TRUE(std::equal(taken.begin(), taken.end(), full.begin()));
}

TEST_F(BlendedLoaderTest, ResumesWhereItWasSavedInTheSameBlendOnly) {
  const auto one = Make(Blended(4));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(one->Next().ok());
  const auto state = nlohmann::json::parse(one->State().dump());
  const auto first = Make(Blended(2, 0, 2)), second = Make(Blended(2, 1, 2));
  ASSERT_TRUE(first->LoadState(state).ok());
  ASSERT_TRUE(second->LoadState(state).ok());
  const at::Tensor expected = one->Next().value().inputs;
  EXPECT_TRUE(
      at::equal(at::cat({first->Next().value().inputs, second->Next().value().inputs}), expected));
  LoaderOptions other = Blended(4);
  other.weights = {1.0, 2.0};
  EXPECT_THAT(Make(other)->LoadState(state).message(),
              HasSubstr("with weights [1.0,3.0], this run has [1.0,2.0]"));
  other.weights.clear();
  EXPECT_THAT(Make(other)->LoadState(state).message(), HasSubstr("this run has []"));
}

TEST_F(BlendedLoaderTest, OfOnePassEverySampleOfEverySourceCountsOnce) {
  LoaderOptions options = Plain(8);
  options.once = true;
  options.held_out = 0.4;
  options.takes_held_out = true;
  const TokenBatch batch = *Make(options)->Next();
  std::vector<std::int64_t> in_loss;
  for (std::int64_t row = 0; row < 8; ++row) {
    const auto label = batch.labels[row][0].item<std::int64_t>();
    if (label != kIgnoredLabel) in_loss.push_back(label);
  }
  EXPECT_THAT(in_loss, ::testing::UnorderedElementsAre(13, 17, 509));
}

TEST_F(LoaderTest, ResumesWhereItWasSavedOnAnotherNumberOfRanks) {
  const auto one = Make(1000, Plain(4));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(one->Next().ok());
  // Through text, as a checkpoint stores it.
  const auto state = nlohmann::json::parse(one->State().dump());
  const auto first = Make(1000, Plain(2, 0, 2)), second = Make(1000, Plain(2, 1, 2));
  ASSERT_TRUE(first->LoadState(state).ok());
  ASSERT_TRUE(second->LoadState(state).ok());
  const at::Tensor expected = one->Next().value().inputs;
  EXPECT_TRUE(
      at::equal(at::cat({first->Next().value().inputs, second->Next().value().inputs}), expected));
}

// A run that is killed again and again, and goes on with another number of ranks each time, sees
// the samples that it would have seen.
TEST_F(LoaderTest, InterruptionsDoNotChangeTheOrder) {
  constexpr std::int64_t kGlobalBatch = 12;
  constexpr std::array kWorlds = {1, 2, 3, 4, 6, 12};
  const auto open = [&](int world) {
    std::vector<std::unique_ptr<Loader>> ranks;
    for (int rank = 0; rank < world; ++rank) {
      LoaderOptions options = Plain(kGlobalBatch / world, rank, world);
      options.order = {.shuffle = true, .seed = 5};
      ranks.push_back(Make(1000, options));  // 249 samples: some passes in all
    }
    return ranks;
  };
  const auto step = [](const std::vector<std::unique_ptr<Loader>>& ranks) {
    std::vector<at::Tensor> parts;
    for (const auto& rank : ranks) parts.push_back(rank->Next().value().inputs);
    return at::cat(parts);
  };
  const auto full = open(1);
  std::mt19937_64 random(20);
  nlohmann::json state = full[0]->State();
  for (int cut = 0; cut < 20; ++cut) {
    const int world = kWorlds[random() % kWorlds.size()];
    const auto ranks = open(world);
    for (const auto& rank : ranks) ASSERT_TRUE(rank->LoadState(state).ok());
    const int saved = static_cast<int>(random() % 9), lost = static_cast<int>(random() % 4);
    for (int i = 0; i < saved; ++i) {
      ASSERT_TRUE(at::equal(step(ranks), step(full))) << "part " << cut << " on " << world;
    }
    state = nlohmann::json::parse(ranks.back()->State().dump());
    EXPECT_EQ(state, ranks.front()->State());
    for (int i = 0; i < lost; ++i) step(ranks);  // behind the checkpoint: seen once more
  }
}

TEST_F(LoaderTest, RefusesAPositionInOtherDataOrNone) {
  const auto loader = Make(1000, Plain(2));
  const nlohmann::json state = Make(500, Plain(2))->State();
  EXPECT_THAT(loader->LoadState(state).message(), HasSubstr("samples_per_epoch 124"));
  nlohmann::json lacking = loader->State();
  lacking.erase("seed");
  EXPECT_THAT(loader->LoadState(lacking).message(), HasSubstr("lacks 'seed'"));
  nlohmann::json negative = loader->State();
  negative["consumed_samples"] = -1;
  EXPECT_EQ(loader->LoadState(negative).code(), StatusCode::kDataLoss);
}

TEST_F(LoaderTest, RefusesAPositionInOtherDataOfTheSameLength) {
  const auto saved = Make(1000, Plain(2))->State();
  std::vector<std::uint16_t> ids(1000, 7);
  const auto other = Loader::Create(
      TokenSource::Open({folder_.WriteTokens("b.bin", ids)}, TokenWidth::kUint16).value(),
      Plain(2));
  EXPECT_EQ(other.value()->LoadState(saved).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.value()->LoadState(saved).message(), HasSubstr("tokens_crc32c"));
  nlohmann::json of_an_older_version = saved;
  of_an_older_version.erase("tokens_crc32c");
  EXPECT_TRUE(other.value()->LoadState(of_an_older_version).ok());
}

TEST_F(LoaderTest, RefusesAPositionInDataThatHasChangedInTheMiddle) {
  std::vector<std::uint16_t> ids(60'000, 7);
  const auto load = [&](const nlohmann::json& saved) {
    const std::string path = folder_.WriteTokens("middle.bin", ids);
    const auto loader =
        Loader::Create(TokenSource::Open({path}, TokenWidth::kUint16).value(), Plain(2)).value();
    return std::pair(loader->State(), saved.empty() ? OkStatus() : loader->LoadState(saved));
  };
  nlohmann::json saved = load({}).first;
  EXPECT_TRUE(load(saved).second.ok());
  ids[30'000] = 8;
  EXPECT_THAT(load(saved).second.message(), HasSubstr("tokens_between_crc32c"));
  saved.erase("tokens_between_crc32c");
  EXPECT_TRUE(load(saved).second.ok()) << "one of an older version";
}

TEST_F(LoaderTest, NamesFileAndOffsetOfATokenOutsideTheVocabulary) {
  LoaderOptions options = Plain(1);
  options.vocab_size = 6;  // the second sample holds 4..8
  const auto loader = Make(100, options);
  ASSERT_TRUE(loader->Next().ok());
  const auto second = loader->Next();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(),
            folder_.path() +
                "/a.bin, token 6 (byte 12): token id 6 is outside the model's "
                "vocabulary of 6 tokens");
}

TEST_F(LoaderTest, RefusesDataTooShortForOneSample) {
  const auto loader = Loader::Create(Counting(4), Plain(1));
  ASSERT_FALSE(loader.ok());
  EXPECT_EQ(loader.status().message(), "the data has 4 tokens, one sample of seq_len 4 needs 5");
}

}  // namespace
}  // namespace ds::data
