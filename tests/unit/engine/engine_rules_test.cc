// Pairs of choices that no engine is built with, by the config alone.

#include "runtime/plan/memory/engine_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::engine {
namespace {

using ::testing::HasSubstr;

std::string Why(const config::DsConfig& config, const EngineSetting& setting = {}) {
  return CheckEngineRules(config, setting).message();
}

TEST(EngineRulesTest, UpdatesInTheBackwardPassAreNotSkipped) {
  config::DsConfig config;
  config.gradient_clipping = 0.0;
  config.zero_optimization.offload_optimizer.super_offload = true;
  EXPECT_EQ(Why(config), "");
  EXPECT_THAT(Why(config, {.skips_non_finite = true}), HasSubstr("cannot be skipped with super_"));
  config.gradient_clipping = 1.0;
  EXPECT_EQ(Why(config, {.skips_non_finite = true}), "") << "it is taken back";
  config.parallel.pipeline = 2;
  EXPECT_THAT(Why(config), HasSubstr("stages of a pipeline have to agree on the step first"));
}

TEST(EngineRulesTest, OptimizersOfFullModelsAreNotBuiltOnParts) {
  config::DsConfig config;
  config.sparse_gradients = true;
  EXPECT_EQ(Why(config), "");
  config.parallel.tensor = 2;
  EXPECT_EQ(Why(config), "sparse_gradients is not built with tensor parallelism, which is 2 here");
  config.parallel = {.pipeline = 2};
  EXPECT_EQ(Why(config), "sparse_gradients is not built with a pipeline, which has 2 stages here");
  config.sparse_gradients = false;
  config.zero_optimization.quantized_weights = true;
  config.parallel = {.expert = 2};
  EXPECT_EQ(Why(config), "ZeRO++ is not built with expert parallelism, which is 2 here");
}

TEST(EngineRulesTest, SchedulesTakeTheirMicroBatches) {
  config::DsConfig config;
  config.parallel.pipeline = 2;
  config.batch.gradient_accumulation_steps = 3;
  EXPECT_EQ(Why(config), "");
  EXPECT_THAT(Why(config, {.schedule = pipeline::ScheduleKind::kInterleaved, .chunks = 2}),
              HasSubstr("a multiple of 2 micro-batches"));
}

}  // namespace
}  // namespace ds::engine
