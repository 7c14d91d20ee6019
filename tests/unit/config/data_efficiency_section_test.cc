// Lengths are those of DeepSpeed's schedulers (goldens), and the keys say what they need.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "runtime/config/curriculum.h"
#include "tests/places.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using PlainJson = nlohmann::json;

PlainJson Goldens() {
  return PlainJson::parse(*ReadFile(DS_SOURCE_DIR "/tests/unit/config/goldens/curriculum.json"));
}

std::string Legacy(PlainJson section) {
  section["enabled"] = true;
  return "\"curriculum_learning\": " + section.dump();
}

std::string Metrics(const PlainJson& metrics) {
  const PlainJson section = {
      {"enabled", true},
      {"data_sampling",
       {{"enabled", true},
        {"curriculum_learning",
         {{"enabled", true}, {"data_cluster_path", "x"}, {"curriculum_metrics", metrics}}}}}};
  return "\"data_efficiency\": " + section.dump();
}

std::string Seqlen(PlainJson metric, const std::string& name = "seqlen",
                   const std::string& samples = "none") {
  metric["difficulty_type"] = metric.value("difficulty_type", "value");
  metric["clustering_type"] = metric.value("clustering_type", "single_cluster");
  if (!samples.empty()) metric["index_to_sample_path"] = samples;
  return Metrics({{name, metric}});
}

std::string RandomLtd(const PlainJson& changes = PlainJson::object()) {
  PlainJson section = {{"enabled", true},
                       {"total_layer_num", 4},
                       {"random_ltd_layer_num", 2},
                       {"random_ltd_layer_id", {1, 2}},
                       {"model_type", "decoder"},
                       {"hidden_state_order", "batch_seq_dim"},
                       {"random_ltd_schedule",
                        {{"min_value", 16},
                         {"max_value", 64},
                         {"schedule_type", "fixed_linear"},
                         {"schedule_config", {{"require_steps", 10}, {"seq_per_step", 8}}}}}};
  section.merge_patch(changes);
  return "\"data_efficiency\": " +
         PlainJson(
             {{"enabled", true}, {"data_routing", {{"enabled", true}, {"random_ltd", section}}}})
             .dump();
}

std::vector<std::string> EfficiencyErrors(const std::string& members) {
  return Messages(CheckWith(members).errors);
}

TEST(Curriculum, GrowsAsDeepSpeedsDoesInBothForms) {
  const PlainJson goldens = Goldens();
  for (const PlainJson& golden : goldens["curricula"]) {
    SCOPED_TRACE(golden["config"].dump());
    for (const std::string& members : {Legacy(golden["config"]), Seqlen(golden["config"])}) {
      const CheckResult checked = CheckWith(members);
      ASSERT_THAT(Messages(checked.errors), IsEmpty());
      ASSERT_TRUE(checked.data_efficiency.curriculum.has_value());
      for (std::size_t i = 0; i < golden["values"].size(); ++i) {
        EXPECT_EQ(
            DifficultyAt(*checked.data_efficiency.curriculum, static_cast<std::int64_t>(i) + 1),
            golden["values"][i])
            << "step " << i + 1;
      }
    }
  }
}

TEST(RandomLtd, KeepsAsManyTokensAsDeepSpeeds) {
  const PlainJson goldens = Goldens();
  for (const PlainJson& golden : goldens["random_ltd"]) {
    SCOPED_TRACE(golden["config"].dump());
    const CheckResult checked = CheckWith(RandomLtd({{"random_ltd_schedule", golden["config"]}}));
    ASSERT_THAT(Messages(checked.errors), IsEmpty());
    ASSERT_TRUE(checked.data_efficiency.random_ltd.has_value());
    EXPECT_THAT(checked.data_efficiency.random_ltd->layers, ElementsAre(1, 2));
    for (std::size_t i = 0; i < golden["values"].size(); ++i) {
      EXPECT_EQ(KeptTokensAt(*checked.data_efficiency.random_ltd, static_cast<std::int64_t>(i)),
                golden["values"][i])
          << i << " finished steps";
    }
  }
}

TEST(DataEfficiencyRules, CurriculumNeedsItsKeys) {
  EXPECT_THAT(EfficiencyErrors(Legacy({{"schedule_type", "fixed_root"}, {"min_difficulty", 8}})),
              Contains(HasSubstr("curriculum_learning.max_difficulty is missing")));
  EXPECT_THAT(EfficiencyErrors(Seqlen({{"min_difficulty", 8},
                                       {"max_difficulty", 64},
                                       {"schedule_type", "fixed_linear"},
                                       {"schedule_config", {{"difficulty_step", 8}}}})),
              ElementsAre(HasSubstr("seqlen.schedule_config.total_curriculum_step is missing")));
}

TEST(DataEfficiencyRules, CurriculumIsDefined) {
  PlainJson section = {{"min_difficulty", 8}, {"max_difficulty", 64}, {"schedule_type", "custom"}};
  EXPECT_THAT(EfficiencyErrors(Legacy(section)), ElementsAre(HasSubstr("custom needs a function")));
  section["schedule_type"] = "fixed_discrete";
  section["schedule_config"] = {{"difficulty", {8, 16}}, {"max_step", {4, 5}}};
  EXPECT_THAT(EfficiencyErrors(Legacy(section)),
              ElementsAre(HasSubstr("must have one number less")));
  section["schedule_config"] = {{"difficulty", {8, 16, 32}}, {"max_step", {5, 4}}};
  EXPECT_THAT(EfficiencyErrors(Legacy(section)), ElementsAre(HasSubstr("max_step must ascend")));
  section["schedule_config"] = {{"difficulty", {8, "x"}}, {"max_step", {5}}};
  EXPECT_THAT(EfficiencyErrors(Seqlen(section)),
              ElementsAre(HasSubstr("must be a list of whole numbers from 1")));
  section["schedule_config"] = {{"difficulty", {8, 16}}, {"max_step", {5}}};
  EXPECT_THAT(EfficiencyErrors(Legacy(section) + ", " + Seqlen(section)),
              ElementsAre(HasSubstr("is the older form of data_efficiency's: give one")));
}

PlainJson Linear(const PlainJson& changes = PlainJson::object()) {
  PlainJson metric = {{"min_difficulty", 8},
                      {"max_difficulty", 64},
                      {"schedule_type", "fixed_linear"},
                      {"schedule_config", {{"difficulty_step", 8}, {"total_curriculum_step", 9}}}};
  metric.merge_patch(changes);
  return metric;
}

TEST(DataEfficiencyRules, MetricsAreKnown) {
  EXPECT_THAT(EfficiencyErrors(Seqlen(Linear(), "vocabularyrarity")),
              ElementsAre(HasSubstr("to select samples by vocabularyrarity use schedule_based")));
  EXPECT_THAT(EfficiencyErrors(Seqlen(Linear({{"difficulty_type", "percentile"}}))),
              ElementsAre(HasSubstr("difficulty_type must be value")));
  const PlainJson chosen = Linear({{"clustering_type", "schedule_based"}});
  EXPECT_THAT(EfficiencyErrors(Seqlen(chosen, "mine", "")),
              ElementsAre(HasSubstr("vocabularyrarity and seqlen are computed without it, mine is "
                                    "not")));
  EXPECT_THAT(EfficiencyErrors(Seqlen(chosen, "mine", "samples")),
              ElementsAre(HasSubstr("index_to_metric_path is missing")));
  EXPECT_THAT(EfficiencyErrors(Seqlen(Linear({{"clustering_type", "schedule_based"},
                                              {"index_to_metric_path", "metrics"}}),
                                      "seqlen", "")),
              ElementsAre(HasSubstr("index_to_metric_path needs index_to_sample_path")));
  const PlainJson falling =
      Linear({{"clustering_type", "schedule_based"},
              {"schedule_type", "fixed_discrete"},
              {"schedule_config", {{"difficulty", {20, 10}}, {"max_step", {5}}}}});
  EXPECT_THAT(EfficiencyErrors(Seqlen(falling, "seqlen", "")),
              ElementsAre(HasSubstr("samples that a step has seen are not taken back")));
}

TEST(DataEfficiencyRules, ReportsKeysThatNoMetricReads) {
  const auto warnings = [](const std::string& members) {
    return Messages(CheckWith(members).warnings);
  };
  EXPECT_THAT(
      warnings(Seqlen(Linear())),
      Contains(HasSubstr("index_to_sample_path has no effect: samples are truncated to a length")));
  const PlainJson misspelt = Linear({{"schedule_config", {{"difficulty_steps", 4}}}});
  EXPECT_THAT(
      warnings(Seqlen(misspelt)),
      Contains(HasSubstr("schedule_config.difficulty_steps has no effect: fixed_linear does "
                         "not read it")));
}

TEST(SampleMetrics, AreReadWithATruncatedLength) {
  const PlainJson chosen = Linear({{"clustering_type", "schedule_based"},
                                   {"difficulty_type", "percentile"},
                                   {"index_to_sample_path", "maps/voc"}});
  PlainJson cut = Linear({{"clustering_type", "single_cluster"}, {"difficulty_type", "value"}});
  const CheckResult checked = CheckWith(
      Metrics({{"voc", chosen},
               {"vocabularyrarity",
                Linear({{"clustering_type", "schedule_based"}, {"difficulty_type", "value"}})},
               {"seqlen_truncate", cut}}));
  ASSERT_THAT(Messages(checked.errors), IsEmpty());
  EXPECT_EQ(checked.data_efficiency.curriculum->max_difficulty, 64);
  const auto& metrics = checked.data_efficiency.sample_metrics;
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].name, "voc");
  EXPECT_EQ(metrics[0].index_to_sample_path, "maps/voc");
  EXPECT_TRUE(metrics[0].by_percentile);
  EXPECT_EQ(metrics[0].difficulty.difficulty_step, 8);
  EXPECT_EQ(metrics[1].name, "vocabularyrarity");
  EXPECT_THAT(metrics[1].index_to_sample_path, IsEmpty());
}

TEST(Curriculum, FirstStepIsThatOfTheSchedule) {
  const CurriculumConfig curriculum{.min_difficulty = 8,
                                    .max_difficulty = 100,
                                    .total_curriculum_step = 30,
                                    .difficulty_step = 16,
                                    .root_degree = 2};
  for (std::int64_t difficulty = 1; difficulty <= 100; ++difficulty) {
    const std::int64_t step = FirstStepAt(curriculum, difficulty).value();
    EXPECT_GE(DifficultyAt(curriculum, step), difficulty);
    if (step == 1) continue;
    EXPECT_LT(DifficultyAt(curriculum, step - 1), difficulty);
  }
  EXPECT_EQ(FirstStepAt(curriculum, 101), std::nullopt);
}

TEST(DataEfficiencyRules, RandomLtdIsDefined) {
  EXPECT_THAT(EfficiencyErrors(RandomLtd({{"random_ltd_layer_id", {1, 4}}})),
              ElementsAre(HasSubstr("must name layers from 0 to total_layer_num - 1")));
  EXPECT_THAT(EfficiencyErrors(RandomLtd({{"random_ltd_layer_num", 3}})),
              ElementsAre(HasSubstr("must be the number of random_ltd_layer_id, 2")));
  EXPECT_THAT(EfficiencyErrors(RandomLtd({{"model_type", "encoder"}})),
              ElementsAre(HasSubstr("must be decoder")));
  EXPECT_THAT(EfficiencyErrors(RandomLtd({{"random_ltd_schedule", {{"min_value", 4}}}})),
              ElementsAre(HasSubstr("no token would be left at first")));
  EXPECT_THAT(EfficiencyErrors(RandomLtd({{"total_layer_num", nullptr}})),
              ElementsAre(HasSubstr("total_layer_num is missing")));
}

TEST(DataEfficiencyRules, LengthsAreOfFullSamples) {
  EXPECT_THAT(EfficiencyErrors(RandomLtd() + ", \"sequence_parallel_size\": 2"),
              ElementsAre(HasSubstr("cannot be combined with sequence_parallel_size 2")));
}

std::string Batching(const PlainJson& changes = PlainJson::object(),
                     const PlainJson& sampling = PlainJson::object()) {
  PlainJson section = {
      {"enabled", true},
      {"data_sampling",
       {{"enabled", true},
        {"dynamic_batching",
         {{"enabled", true}, {"max_tokens", 512}, {"lr_scaling_method", "sqrt"}}}}}};
  section["data_sampling"]["dynamic_batching"].merge_patch(changes);
  section["data_sampling"].merge_patch(sampling);
  return "\"data_efficiency\": " + section.dump();
}

TEST(DynamicBatching, IsReadAsDeepSpeedSpellsIt) {
  const CheckResult checked = CheckWith(Batching({{"sequence_picking_order", "seqlen"},
                                                  {"max_batch_size", 9},
                                                  {"metrics_path", "maps"},
                                                  {"verbose", true}}));
  ASSERT_THAT(Messages(checked.errors), IsEmpty());
  const DynamicBatching expected{.max_tokens = 512,
                                 .max_batch_size = 9,
                                 .picking = DynamicBatching::Picking::kLength,
                                 .rate_scaling = DynamicBatching::RateScaling::kRoot,
                                 .metrics_path = "maps",
                                 .verbose = true};
  EXPECT_TRUE(checked.data_efficiency.dynamic_batching == expected);
  EXPECT_FALSE(
      CheckWith("\"data_efficiency\": {\"enabled\": true}").data_efficiency.dynamic_batching);
}

TEST(DataEfficiencyRules, DynamicBatchingIsDefined) {
  EXPECT_THAT(EfficiencyErrors(Batching({{"max_tokens", nullptr}})),
              ElementsAre(HasSubstr("max_tokens is missing")));
  EXPECT_THAT(EfficiencyErrors(Batching({{"max_tokens", 0}})),
              ElementsAre(HasSubstr("max_tokens must be")));
  EXPECT_THAT(EfficiencyErrors(Batching({{"min_batch_size", 4}, {"max_batch_size", 3}})),
              ElementsAre(HasSubstr("max_batch_size must not be below min_batch_size")));
  EXPECT_THAT(EfficiencyErrors(Batching({{"lr_scaling_method", "cubic"}})),
              ElementsAre(HasSubstr("lr_scaling_method must be")));
  EXPECT_THAT(EfficiencyErrors(Batching() + ", " + Legacy(Linear())),
              ElementsAre(HasSubstr("cannot be combined with curriculum learning")));
  EXPECT_THAT(EfficiencyErrors(Batching() + ", \"sequence_parallel_size\": 2"),
              ElementsAre(HasSubstr("cannot be combined with sequence_parallel_size 2")));
}

TEST(DynamicBatching, ReportsASwitchThatIsOffAboveIt) {
  const CheckResult checked = CheckWith(Batching(PlainJson::object(), {{"enabled", false}}));
  EXPECT_FALSE(checked.data_efficiency.dynamic_batching);
  EXPECT_THAT(Messages(checked.warnings),
              Contains(HasSubstr("dynamic_batching.enabled has no effect while "
                                 "data_efficiency.data_sampling.enabled is false")));
}

TEST(DataEfficiencyRules, AMetricWithoutKeysIsNotPassedOver) {
  EXPECT_THAT(EfficiencyErrors(Metrics({{"seqlen", Linear({{"difficulty_type", "value"},
                                                           {"clustering_type", "single_cluster"}})},
                                        {"voc", PlainJson::object()}})),
              ElementsAre(HasSubstr("curriculum_metrics.voc is empty")));
}

TEST(DataEfficiencyRules, DisabledSectionsAreAbsent) {
  const CheckResult off = CheckWith("\"data_efficiency\": {\"enabled\": true}");
  EXPECT_THAT(Messages(off.errors), IsEmpty());
  EXPECT_FALSE(off.data_efficiency.curriculum || off.data_efficiency.random_ltd);
}

}  // namespace
}  // namespace ds::config
