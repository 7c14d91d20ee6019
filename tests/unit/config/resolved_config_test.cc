#include "runtime/config/file/resolved_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::IsEmpty;

// The resolved config of an accepted one is accepted, too, with the same values and with nothing
// more to say.
void ExpectRoundTrip(const std::string& text, int world_size) {
  const CheckResult first = CheckConfig(text, "ds.json", world_size);
  if (!first.ok) return;
  const std::string written = ToResolvedConfigJson(first).dump(2);
  const CheckResult second = CheckConfig(written, "config.resolved.json", world_size);
  EXPECT_THAT(Messages(second.errors), IsEmpty()) << text << "\n" << written;
  EXPECT_EQ(second.resolved, first.resolved) << text;
  EXPECT_EQ(second.config.batch.train_batch_size, first.config.batch.train_batch_size);
  EXPECT_EQ(second.config.scheduler.index(), first.config.scheduler.index());
}

TEST(ResolvedConfigTest, IsAConfigWithTheSameValues) {
  const std::filesystem::path tests = std::filesystem::path(DS_SOURCE_DIR) / "tests";
  std::set<std::string> configs;
  for (const Json& run : Json::parse(ReadFile(tests / "numerics/goldens/training.json").value())) {
    configs.insert(run["config"].dump());
  }
  for (const Json& run :
       Json::parse(ReadFile(tests / "numerics/goldens/optimizers.json").value())) {
    if (run.contains("config")) configs.insert(run["config"].dump());
  }
  for (const Json& row :
       Json::parse(ReadFile(tests / "unit/optim/goldens/schedules.json").value())) {
    configs.insert(Json{{"train_batch_size", 8}, {"scheduler", row["scheduler"]}}.dump());
  }
  EXPECT_GT(configs.size(), 150u);
  for (const std::string& config : configs) ExpectRoundTrip(config, 2);
}

TEST(ResolvedConfigTest, OmitsForbiddenKeys) {
  const std::string elastic = R"({"elasticity": {"enabled": true, "max_train_batch_size": 24,
                                  "micro_batch_sizes": [2, 4, 6]}})";
  ExpectRoundTrip(elastic, 2);
  const CheckResult result = CheckConfig(elastic, "ds.json", 2);
  EXPECT_FALSE(result.resolved.contains("elasticity")) << "DeepSpeed 0.19.8 refuses it";
  EXPECT_EQ(ValueOf(result, "train_batch_size"), 24);
  EXPECT_EQ(ValueOf(result, "train_micro_batch_size_per_gpu"), 6);
  EXPECT_EQ(ValueOf(result, "gradient_accumulation_steps"), 2);
  EXPECT_EQ(OriginOf(result, "train_batch_size"), "derived from elasticity, world size 2");
  // The old name, sections that switch a feature on by being there, parameters nothing has set.
  const CheckResult old = CheckWith(R"("zero_optimization": {"stage": 3, "cpu_offload": false,
      "stage3_gather_fp16_weights_on_model_save": true}, "optimizer": {"type": "AdamW"})");
  EXPECT_EQ(ValueOf(old, "zero_optimization.stage3_gather_fp16_weights_on_model_save"), Json());
  EXPECT_EQ(ValueOf(old, "zero_optimization.stage3_gather_16bit_weights_on_model_save"), true);
  EXPECT_FALSE(old.resolved["zero_optimization"].contains("zenflow"));
  EXPECT_EQ(old.resolved["optimizer"], Json({{"type", "AdamW"}}));
  EXPECT_FALSE(old.resolved.contains("scheduler"));
  EXPECT_FALSE(old.resolved.contains("sparse_gradients"));
  ExpectRoundTrip(old.given.dump(), 2);
  const CheckResult stage3 =
      CheckWith(R"("zero_optimization": {"stage": 3, "stage3_max_reuse_distance": 1000000000})");
  EXPECT_EQ(stage3.resolved["zero_optimization"]["stage3_max_reuse_distance"], 1000000000);
  EXPECT_FALSE(stage3.resolved["zero_optimization"].contains("stage3_prefetch_bucket_size"))
      << "there it would be meant";
  ExpectRoundTrip(stage3.resolved.dump(), 2);
  const CheckResult hooks = CheckWith(R"("zero_optimization": {"stage": 1, "grad_hooks": false})");
  EXPECT_TRUE(hooks.ok);
  EXPECT_FALSE(hooks.resolved["zero_optimization"].contains("grad_hooks")) << "DeepSpeed fails";
  const CheckResult mics = CheckWith(R"("zero_optimization": {"stage": 3, "mics_shard_size": -1,
      "mics_hierarchical_params_gather": false})");
  for (const std::string key : {"mics_shard_size", "mics_hierarchical_params_gather"}) {
    EXPECT_FALSE(mics.resolved["zero_optimization"].contains(key)) << "DeepSpeed refuses " << key;
  }
}

TEST(ResolvedConfigTest, KeepsNamesWithDots) {
  const std::string text = R"({"train_batch_size": 8, "compression_training": {"row_pruning": {
      "different_groups": {"a.b": {"modules": ["x"]}}}}})";
  ExpectRoundTrip(text, 2);
  const CheckResult result = CheckConfig(text, "ds.json", 2);
  EXPECT_TRUE(result.resolved.contains(
      Json::json_pointer("/compression_training/row_pruning/different_groups/a.b/modules")));
}

}  // namespace
}  // namespace ds::config
