#include "runtime/config/sections/elasticity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>

#include "tests/unit/config/goldens.h"

namespace ds::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Version = ElasticityConfig::Version;

// One recorded call of the reference.
struct Recorded {
  ElasticityConfig config;
  std::optional<std::int64_t> num_gpus;
  nlohmann::json answer;  // [batch, valid GPUs, micro batch], or the name of an exception

  bool has_answer() const { return answer.is_array(); }
  // An answer that no job can run with.
  bool is_impossible() const {
    return has_answer() && (answer[0] == 0 || answer[1].is_null() || answer[1].empty());
  }
};

Recorded Read(const nlohmann::json& row) {
  Recorded recorded{.config = {.max_train_batch_size = row[0],
                               .micro_batch_sizes = row[1],
                               .min_gpus = row[2],
                               .max_gpus = row[3],
                               .prefer_larger_batch = row[4],
                               .num_gpus_per_node = row[6],
                               .model_parallel_size = row[7],
                               .version = row[5] == 0.1 ? Version::k01 : Version::k02},
                    .answer = row[10]};
  if (!row[9].get_ref<const std::string&>().empty()) recorded.num_gpus = row[8];
  return recorded;
}

// As the golden file writes them.
nlohmann::json Shortened(const std::vector<std::int64_t>& counts) {
  if (counts.size() <= 12) return counts;
  const auto sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  return {counts.size(), counts.front(), counts.back(), sum};
}

// Why our answer need not be the reference's (runtime/config/README.md), or "".
std::string Difference(const Recorded& recorded) {
  const ElasticityConfig& config = recorded.config;
  if (config.version == Version::k01) return recorded.is_impossible() ? "nothing fits" : "";
  if (config.max_gpus < config.num_gpus_per_node) return "less than a node";
  if (recorded.num_gpus.value_or(0) % config.model_parallel_size != 0) return "part of a replica";
  if (recorded.answer == "TypeError") return "nothing fits a node";
  return recorded.is_impossible() ? "a batch of none" : "";
}

TEST(SolveElasticityTest, AnswersAsTheReferenceDoes) {
  int equal = 0, refused = 0;
  for (const nlohmann::json& row : ReadGolden("elasticity.json")) {
    const Recorded recorded = Read(row);
    if (!Difference(recorded).empty()) continue;
    SCOPED_TRACE(row.dump());
    const auto batch = SolveElasticity(recorded.config, recorded.num_gpus);
    ASSERT_EQ(batch.ok(), recorded.has_answer()) << batch.status().message();
    if (!batch.ok()) {
      ++refused;
      continue;
    }
    ++equal;
    EXPECT_EQ(batch->final_batch_size, recorded.answer[0]);
    EXPECT_EQ(Shortened(batch->valid_gpus), recorded.answer[1]);
    if (recorded.answer[2].is_null()) continue;
    EXPECT_EQ(batch->micro_batch_size, recorded.answer[2]);
  }
  EXPECT_GT(equal, 250);
  EXPECT_GT(refused, 100);
}

// Where it differs: an error, or an answer that keeps what the config demands.
TEST(SolveElasticityTest, NeverReturnsImpossibleBatches) {
  std::map<std::string, int> seen;
  for (const nlohmann::json& row : ReadGolden("elasticity.json")) {
    const Recorded recorded = Read(row);
    const std::string difference = Difference(recorded);
    if (difference.empty()) continue;
    SCOPED_TRACE(row.dump());
    ++seen[difference];
    const auto batch = SolveElasticity(recorded.config, recorded.num_gpus);
    if (!batch.ok()) continue;
    EXPECT_TRUE(difference == "nothing fits a node" || difference == "a batch of none");
    const std::int64_t ranks = batch->valid_gpus.at(0);
    EXPECT_EQ(ranks, *recorded.num_gpus / recorded.config.model_parallel_size);
    EXPECT_LE(batch->final_batch_size, recorded.config.max_train_batch_size);
    EXPECT_EQ(batch->final_batch_size % (*batch->micro_batch_size * ranks), 0);
  }
  EXPECT_GT(seen["nothing fits"], 5);
  EXPECT_GT(seen["less than a node"], 5);
  EXPECT_GT(seen["part of a replica"], 5);
  EXPECT_GT(seen["nothing fits a node"], 0);
  EXPECT_GT(seen["a batch of none"], 0);
}

TEST(SolveElasticityTest, TheVectorsOfTheReferenceTests) {
  ElasticityConfig config{.max_train_batch_size = 10000,
                          .micro_batch_sizes = {8, 12, 16, 17},
                          .min_gpus = 32,
                          .max_gpus = 1500,
                          .version = Version::k01};
  const auto batch = SolveElasticity(config, 64);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->final_batch_size, 9792);
  EXPECT_EQ(batch->valid_gpus.size(), 23u);
  EXPECT_EQ(batch->micro_batch_size, 17);
  EXPECT_FALSE(SolveElasticity(config, std::nullopt)->micro_batch_size.has_value());
  config = {.max_train_batch_size = 100, .micro_batch_sizes = {8, 10, 12}, .version = Version::k01};
  EXPECT_EQ(SolveElasticity(config, std::nullopt)->final_batch_size, 96);
}

std::string Error(const ElasticityConfig& config, std::optional<std::int64_t> num_gpus) {
  const auto batch = SolveElasticity(config, num_gpus);
  return batch.ok() ? "solved" : batch.status().message();
}

TEST(SolveElasticityTest, WithModelParallelismTheMicroBatchIsARanks) {
  // 16 GPUs are 8 data-parallel ranks; the reference divides by 16 and finds none.
  const ElasticityConfig config{.max_train_batch_size = 64,
                                .micro_batch_sizes = {8},
                                .num_gpus_per_node = 8,
                                .model_parallel_size = 2};
  const auto batch = SolveElasticity(config, 16);
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  EXPECT_EQ(batch->final_batch_size, 64);
  EXPECT_THAT(batch->valid_gpus, ElementsAre(4, 8));
  EXPECT_EQ(batch->micro_batch_size, 8);
  EXPECT_THAT(Error(config, 7), HasSubstr("7 GPUs are not a multiple of model_parallel_size 2"));
}

TEST(SolveElasticityTest, NamesErrors) {
  const ElasticityConfig by_gpus{.version = Version::k01};
  const auto with = [&](auto change) {
    ElasticityConfig config = by_gpus;
    change(config);
    return Error(config, std::nullopt);
  };
  EXPECT_EQ(with([](auto&) {}), "solved");
  EXPECT_THAT(with([](auto& c) { c.micro_batch_sizes = {}; }), HasSubstr("is empty"));
  EXPECT_THAT(with([](auto& c) { c.micro_batch_sizes = {2, 0}; }), HasSubstr("not 0"));
  EXPECT_THAT(with([](auto& c) { c.micro_batch_sizes.assign(257, 1); }), HasSubstr("256 entries"));
  EXPECT_THAT(with([](auto& c) { c.max_train_batch_size = 0; }), HasSubstr("not 0"));
  EXPECT_THAT(with([](auto& c) { c.max_train_batch_size = 5; }),
              HasSubstr("has 6, more than max_train_batch_size 5"));
  EXPECT_THAT(with([](auto& c) { c.min_gpus = 0; }), HasSubstr("min_gpus must be at least 1"));
  EXPECT_THAT(with([](auto& c) { c.min_gpus = 10001; }), HasSubstr("is less than min_gpus 10001"));
  EXPECT_THAT(with([](auto& c) { c.model_parallel_size = 0; }), HasSubstr("at least 1"));
  EXPECT_THAT(with([](auto& c) { c.model_parallel_size = 2; }), HasSubstr("needs version 0.2"));
  EXPECT_THAT(with([](auto& c) { c.num_gpus_per_node = 0; }), HasSubstr("at least 1"));
  EXPECT_EQ(with([](auto& c) { c.min_gpus = 2000; }),
            "elasticity: no number of GPUs between 2000 and 10000 can share a batch of at most "
            "2000 samples in micro-batches of 2, 4, 6");
}

TEST(SolveElasticityTest, NamesNearbyNumbersOfGpus) {
  const ElasticityConfig config{.max_train_batch_size = 24, .version = Version::k01};
  EXPECT_THAT(Error(config, 5), HasSubstr("the nearest are 4 and 6"));
  EXPECT_THAT(Error(config, 100), HasSubstr("the nearest is 12"));
  EXPECT_THAT(Error(config, 0), HasSubstr("at least 1"));
}

TEST(SolveElasticityTest, NamesErrorsByNodes) {
  const ElasticityConfig config{.max_train_batch_size = 24, .num_gpus_per_node = 4};
  EXPECT_THAT(Error(config, std::nullopt), HasSubstr("0.2 needs the number of GPUs"));
  EXPECT_EQ(Error(config, 14),
            "elasticity: one micro-batch on each of 14 data-parallel ranks is more than "
            "max_train_batch_size 24");
  ElasticityConfig other = config;
  other.model_parallel_size = 3;
  EXPECT_THAT(Error(other, 4), HasSubstr("4 is not a multiple of model_parallel_size 3"));
  other = config;
  other.max_gpus = 3;
  EXPECT_THAT(Error(other, 4), HasSubstr("less than one node"));
  other = config;
  other.max_train_batch_size = 20;
  EXPECT_THAT(Error(other, 4),
              HasSubstr("has 6, more than max_train_batch_size 20 / 4 data-parallel ranks"));
}

TEST(SolveElasticityTest, LargeNumbersTakeNoTime) {
  ElasticityConfig config{.max_train_batch_size = std::int64_t{1} << 40,
                          .micro_batch_sizes = {999983, 1000003, 7},
                          .max_gpus = INT64_MAX,
                          .version = Version::k01};
  EXPECT_EQ(Error(config, std::nullopt), "solved");
  config.max_train_batch_size = INT64_MAX;
  EXPECT_THAT(Error(config, std::nullopt), HasSubstr("between 1 and 1099511627776"));
}

}  // namespace
}  // namespace ds::config
