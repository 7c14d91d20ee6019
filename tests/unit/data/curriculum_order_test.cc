// Which samples become eligible in which step is what DeepSpeed's data sampler has made of its data
// analyzer's maps (goldens of scripts/goldens/make_sampler_goldens.py).

#include "runtime/data/curriculum_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "runtime/base/files.h"
#include "runtime/data/loader.h"
#include "runtime/data/sample_difficulty.h"
#include "tests/places.h"
#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kGoldens[] = DS_SOURCE_DIR "/tests/unit/data/goldens/curriculum/";
constexpr std::int64_t kLength = 8, kBatch = 6, kSteps = 40;

Json Goldens() { return Json::parse(*ReadFile(std::string(kGoldens) + "sampler.json")); }

config::SampleMetric ReadMetric(const std::string& name, const Json& section, bool with_maps) {
  config::SampleMetric metric{.name = name,
                              .by_percentile = section["difficulty_type"] == "percentile",
                              .difficulty = {.min_difficulty = section["min_difficulty"],
                                             .max_difficulty = section["max_difficulty"]}};
  if (with_maps) {
    metric.index_to_sample_path = kGoldens + section["index_to_sample_path"].get<std::string>();
    metric.index_to_metric_path = kGoldens + section["index_to_metric_path"].get<std::string>();
  }
  const Json& shape = section["schedule_config"];
  config::CurriculumConfig& difficulty = metric.difficulty;
  difficulty.total_curriculum_step = shape.value("total_curriculum_step", 1);
  difficulty.difficulty_step = shape.value("difficulty_step", 1);
  difficulty.root_degree = shape.value("root_degree", 1);
  difficulty.difficulty = shape.value("difficulty", std::vector<std::int64_t>());
  difficulty.max_step = shape.value("max_step", std::vector<std::int64_t>());
  return metric;
}

std::vector<config::SampleMetric> ReadMetrics(const Json& golden) {
  std::vector<config::SampleMetric> metrics;
  for (const auto& item : golden["metrics"].items()) {
    metrics.push_back(ReadMetric(item.key(), item.value(), /*with_maps=*/true));
  }
  return metrics;
}

LoaderOptions Options(std::vector<config::SampleMetric> metrics, int rank = 0, int world_size = 1) {
  return {.micro_batch = kBatch / world_size,
          .seq_len = kLength,
          .vocab_size = 60,
          .reader = {.index = rank, .count = world_size},
          .order = {.shuffle = true, .seed = 5},
          .metrics = std::move(metrics),
          .samples_per_step = kBatch};
}

TokenSource Tokens() {
  return TokenSource::Open({std::string(kGoldens) + "tokens.bin"}, TokenWidth::kUint16).value();
}

// What a rank is given in each step.
std::vector<std::vector<std::int64_t>> ReadStream(Loader& loader, std::int64_t steps) {
  std::vector<std::vector<std::int64_t>> stream;
  for (std::int64_t step = 0; step < steps; ++step) {
    const at::Tensor inputs = loader.Next().value().inputs.flatten();
    stream.emplace_back(inputs.const_data_ptr<std::int64_t>(),
                        inputs.const_data_ptr<std::int64_t>() + inputs.numel());
  }
  return stream;
}

std::vector<std::int64_t> FindFirstSteps(const Json& golden) {
  std::vector<std::int64_t> first_steps(120, kNever);
  for (const Json& cluster : golden["clusters"]) {
    for (const std::size_t sample : cluster["samples"]) first_steps[sample] = cluster["step"];
  }
  return first_steps;
}

TEST(CurriculumOrder, StepsHaveTheSamplesOfDeepSpeedsClusters) {
  for (const Json& golden : Goldens()["cases"]) {
    SCOPED_TRACE(golden["metrics"].dump());
    auto loader = Loader::Create(Tokens(), Options(ReadMetrics(golden))).value();
    // The same order, made of DeepSpeed's clusters.
    auto expected =
        CurriculumOrder::Create(FindFirstSteps(golden), kBatch, {.shuffle = true, .seed = 5})
            .value();
    EXPECT_EQ(loader->State()["curriculum"]["order_crc32c"], expected.fingerprint());
    auto all = Tokens();
    std::vector<std::int64_t> tokens(kLength);
    const auto stream = ReadStream(*loader, kSteps);
    for (std::int64_t position = 0; position < kSteps * kBatch; ++position) {
      ASSERT_TRUE(all.Read(expected.At(position) * kLength, tokens).ok());
      const auto& step = stream[static_cast<std::size_t>(position / kBatch)];
      const auto* const row = step.data() + position % kBatch * kLength;
      EXPECT_EQ(std::vector<std::int64_t>(row, row + kLength), tokens) << "place " << position;
    }
  }
}

TEST(CurriculumOrder, TakesOfEveryClusterInProportionAndRepeatsNoneTooSoon) {
  std::vector<std::int64_t> first_steps(100, 1);  // 60 from the first step on, 30 from the third
  std::fill_n(first_steps.begin() + 60, 30, 3);
  std::fill_n(first_steps.begin() + 90, 10, 21);
  auto order = CurriculumOrder::Create(first_steps, 30, {.shuffle = true, .seed = 1}).value();
  std::map<std::int64_t, int> seen;
  const auto take = [&](std::int64_t first, std::int64_t count) {
    std::array<int, 3> taken{};
    for (std::int64_t position = first; position < first + count; ++position) {
      const std::int64_t sample = order.At(position);
      EXPECT_LE(first_steps[static_cast<std::size_t>(sample)], position / 30 + 1);
      ++seen[sample];
      ++taken[sample < 60 ? 0 : sample < 90 ? 1 : 2];
    }
    return taken;
  };
  EXPECT_THAT(take(0, 60), ::testing::ElementsAre(60, 0, 0));
  for (const auto& [sample, times] : seen) EXPECT_EQ(times, 1);  // a whole pass
  EXPECT_THAT(take(60, 90), ::testing::ElementsAre(60, 30, 0));
  for (const auto& [sample, times] : seen) EXPECT_EQ(times, sample < 60 ? 2 : 1);
  EXPECT_THAT(take(150, 450), ::testing::ElementsAre(300, 150, 0));
  EXPECT_THAT(take(600, 100), ::testing::ElementsAre(60, 30, 10));
  EXPECT_EQ(order.growth().first, 60);
  EXPECT_EQ(order.growth().last, 100);
  EXPECT_EQ(order.growth().last_step, 21);
  for (const auto& [sample, times] : seen) {
    EXPECT_EQ(times, sample < 60 ? 8 : sample < 90 ? 7 : 1) << sample;
  }
}

TEST(CurriculumOrder, MatchesEveryWorldSizeAndResumesAnywhere) {
  const auto metrics = ReadMetrics(Goldens()["cases"][2]);
  const auto full = ReadStream(*Loader::Create(Tokens(), Options(metrics)).value(), kSteps);
  for (const std::int64_t done : {0, 1, 11, 30}) {
    auto one = Loader::Create(Tokens(), Options(metrics)).value();
    ReadStream(*one, done);
    std::vector<std::int64_t> joined;
    for (int rank = 0; rank < 3; ++rank) {
      auto loader = Loader::Create(Tokens(), Options(metrics, rank, 3)).value();
      ASSERT_TRUE(loader->LoadState(one->State()).ok());
      const auto step = ReadStream(*loader, 1)[0];
      joined.insert(joined.end(), step.begin(), step.end());
    }
    EXPECT_EQ(joined, full[static_cast<std::size_t>(done)]) << done;
  }
}

TEST(CurriculumOrder, StateIsOfOneCurriculum) {
  const auto metrics = ReadMetrics(Goldens()["cases"][0]);
  const auto plain = Loader::Create(Tokens(), Options({})).value();
  const auto loader = Loader::Create(Tokens(), Options(metrics)).value();
  EXPECT_THAT(loader->LoadState(plain->State()).message(), HasSubstr("one with curriculum null"));
  LoaderOptions options = Options(metrics);
  options.samples_per_step = 7;
  const auto other = Loader::Create(Tokens(), options).value();
  EXPECT_THAT(other->LoadState(loader->State()).message(), HasSubstr("\"samples_per_step\":6"));
}

TEST(SampleDifficulty, RarityIsThatOfTheAnalyzer) {
  const Json section = Goldens()["cases"][0]["metrics"]["vocabularyrarity"];
  const auto samples = SampleSet::Create(Tokens(), Options({})).value();
  const auto mapped =
      FindDifficulties(ReadMetric("vocabularyrarity", section, /*with_maps=*/true), samples);
  const auto computed =
      FindDifficulties(ReadMetric("vocabularyrarity", section, /*with_maps=*/false), samples);
  EXPECT_EQ(*computed, *mapped);
}

TEST(SampleDifficulty, RarityIsComputedOnceOnAHostAndAgainWhenItIsDamaged) {
  namespace fs = std::filesystem;
  const ScratchFolder folder;
  const fs::path root = fs::path(folder.path()) / "cache";
  const config::SampleMetric metric =
      ReadMetric("vocabularyrarity", Goldens()["cases"][0]["metrics"]["vocabularyrarity"],
                 /*with_maps=*/false);
  const auto find = [&](std::int64_t seq_len, const fs::path& cache) {
    LoaderOptions options = Options({});
    options.seq_len = seq_len;
    const auto samples = SampleSet::Create(Tokens(), options).value();
    return FindDifficulties(metric, samples, {.root = cache, .seq_len = seq_len}).value();
  };
  const auto list = [&] {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(root)) {
      if (entry.is_directory()) files.push_back(entry.path() / "metrics.bin");
    }
    return files;
  };
  const auto expected = find(kLength, "");
  EXPECT_EQ(find(kLength, root), expected);
  ASSERT_EQ(list().size(), 1u);
  const fs::path file = list()[0];
  const auto written = fs::last_write_time(file);
  EXPECT_EQ(find(kLength, root), expected);
  EXPECT_EQ(fs::last_write_time(file), written) << "it was there";
  std::string bytes = *ReadFile(file);
  bytes[9] = static_cast<char>(bytes[9] ^ 1);
  ASSERT_TRUE(WriteFileAtomically(file, bytes).ok());
  EXPECT_EQ(find(kLength, root), expected);
  EXPECT_NE(*ReadFile(file), bytes) << "it was made again";
  EXPECT_EQ(find(4, root), find(4, "")) << "other samples have metrics of their own";
  EXPECT_EQ(list().size(), 2u);
  EXPECT_EQ(find(kLength, "/proc/no/such/place"), expected) << "no place is no reason to stop";
}

TEST(SampleDifficulty, LengthIsThatOfASample) {
  const auto samples = SampleSet::Create(Tokens(), Options({})).value();
  const auto lengths = FindDifficulties({.name = "seqlen"}, samples);
  EXPECT_EQ(*lengths, std::vector<std::int64_t>(120, kLength));
}

class BadMaps : public ::testing::Test {
 protected:
  // Of one row of 2 samples, unless `bytes` say otherwise.
  std::string ErrorOf(const std::string& numbers, std::int32_t count, std::uint8_t dtype = 1,
                      double held_out = 0.0) const {
    std::string index("MMIDIDX\0\0", 9);
    const auto add = [&](auto number) {
      index.append(reinterpret_cast<const char*>(&number), sizeof(number));
    };
    add(std::uint64_t{1}), add(dtype), add(std::uint64_t{1}), add(std::uint64_t{2});
    add(count), add(std::int64_t{0}), add(std::int64_t{0}), add(std::int64_t{1});
    const std::string path = folder_.Write("m.idx", index);
    folder_.Write("m.bin", numbers);
    LoaderOptions options = Options({});
    options.held_out = held_out;
    const auto samples = SampleSet::Create(Tokens(), options).value();
    const config::SampleMetric metric{.name = "m",
                                      .index_to_sample_path = path.substr(0, path.size() - 4),
                                      .by_percentile = true};
    const auto found = FindDifficulties(metric, samples);
    return found.ok() ? "accepted" : found.status().message();
  }
  const ScratchFolder folder_;
};

TEST_F(BadMaps, AreRefusedByName) {
  EXPECT_EQ(ErrorOf("\1\2", 2), "accepted");
  EXPECT_THAT(ErrorOf("\1\x78", 2), HasSubstr("names sample 120, and the data has 120"));
  EXPECT_THAT(ErrorOf("\1\x77", 2, 1, 0.25),
              HasSubstr("names sample 119, which --eval_split holds out: of 120 samples 90"));
  EXPECT_THAT(ErrorOf("\1\1", 2), HasSubstr("names sample 1 twice"));
  EXPECT_THAT(ErrorOf("\1", 2), HasSubstr("its index counts 2 numbers of 1"));
  EXPECT_THAT(ErrorOf("\1\2", -2), HasSubstr("row 0 does not follow"));
  EXPECT_THAT(ErrorOf("\1\2", 2, 9), HasSubstr("nothing is known of its dtype 9"));
}

TEST(CurriculumOrder, NeedsASampleForTheFirstStep) {
  auto metrics = ReadMetrics(Goldens()["cases"][0]);
  metrics[0].difficulty.min_difficulty = 1;
  const auto loader = Loader::Create(Tokens(), Options(metrics));
  EXPECT_THAT(loader.status().message(),
              HasSubstr("by the metric vocabularyrarity no sample is easy enough for the bound of "
                        "the first step, 3, and the easiest has 1"));
}

}  // namespace
}  // namespace ds::data
