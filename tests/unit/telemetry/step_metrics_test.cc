#include "runtime/engine/report/step_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/device/memory_ledger.h"

namespace ds::telemetry {
namespace {

const StepMetrics kStep{.step = 7,
                        .loss = 2.0 / 3.0,
                        .grad_norm = 1.0 / 7.0,
                        .lr = 0.1 + 0.2,
                        .loss_scale = 65536.0,
                        .tokens = 4096,
                        .samples = 16,
                        .step_seconds = 0.5};

TEST(StepMetrics, HasTheFieldsInTheirOrder) {
  std::vector<std::string> names;
  const nlohmann::ordered_json json = ToJson(kStep, {});
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_THAT(names,
              ::testing::ElementsAre("step", "loss", "grad_norm", "lr", "loss_scale", "skipped",
                                     "tokens", "samples", "step_seconds", "data_seconds",
                                     "tokens_per_second", "communicated", "memory"));
}

TEST(StepMetrics, PrintedNumbersReadBackBitForBit) {
  const auto back = nlohmann::json::parse(ToJson(kStep, {}).dump());
  EXPECT_EQ(back["loss"].get<double>(), kStep.loss);
  EXPECT_EQ(back["grad_norm"].get<double>(), kStep.grad_norm);
  EXPECT_EQ(back["lr"].get<double>(), kStep.lr);
  EXPECT_EQ(back["tokens_per_second"].get<double>(), 8192.0);
  EXPECT_EQ(back["skipped"], false);
}

TEST(StepMetrics, NonFiniteNumbersAreNull) {
  StepMetrics step = kStep;
  step.grad_norm = std::numeric_limits<double>::quiet_NaN();
  step.step_seconds = 0.0;
  const auto back = nlohmann::json::parse(ToJson(step, {}).dump());
  EXPECT_TRUE(back["grad_norm"].is_null());
  EXPECT_EQ(back["tokens_per_second"], 0.0);
}

TEST(StepMetrics, PhasesOfTheStepAreNextToIt) {
  auto json = ToJson(kStep, {});
  EXPECT_FALSE(json.contains("phase_seconds"));
  AddPhases({.forward = 0.25, .backward = 0.5, .backward_inner = 0.375, .step = 0.125}, &json);
  EXPECT_EQ(json["phase_seconds"].dump(),
            R"({"forward":0.25,"backward":0.5,"backward_inner":0.375,"backward_allreduce":0.0,)"
            R"("step":0.125})");
}

TEST(StepMetrics, ExpertsHaveTheirRoutesAndTheFullestOfEachLayer) {
  auto json = ToJson(kStep, {});
  AddExpertLoad({{4, 4, 4}, {0, 12, 0}, {0, 0, 0}}, &json);
  EXPECT_EQ(json["expert_imbalance"], nlohmann::ordered_json({1.0, 3.0, 1.0}));
  EXPECT_EQ(json["expert_routes"][1][1], 12);
  AddExpertLoad({std::vector<std::int64_t>(kMostExpertRoutes + 1, 2)}, &(json = ToJson(kStep, {})));
  EXPECT_EQ(json["expert_imbalance"][0], 1.0);
  EXPECT_FALSE(json.contains("expert_routes")) << "a line has an end";
}

TEST(StepMetrics, TheLoadOfARankIsThatOfItsExpertsInEachLayer) {
  const std::vector<std::vector<std::int64_t>> routes = {{4, 4, 4, 4}, {10, 2, 3, 1}, {0, 0, 0, 0}};
  using Loads = std::vector<std::vector<double>>;
  EXPECT_EQ(FindExpertLoads(routes, 2), (Loads{{1.0, 1.5, 1.0}, {1.0, 0.5, 1.0}}));
  EXPECT_EQ(FindExpertLoads(routes, 1), (Loads{{1.0, 1.0, 1.0}}));
  EXPECT_TRUE(FindExpertLoads(routes, 3).empty());
  EXPECT_TRUE(FindExpertLoads({}, 2).empty());
}

TEST(MemoryReport, HoldsTheLedgerAndTheProcess) {
  device::MemoryLedger ledger;
  ledger.Add(device::MemoryUse::kGradients, device::MemoryTier::kHost, 4096);
  const auto report = MakeMemoryReport(ledger);
  EXPECT_EQ(report["gradients"]["host"]["bytes"], 4096);
  EXPECT_GT(report["resident_bytes"], 0);
  EXPECT_GE(report["peak_resident_bytes"], report["resident_bytes"]);
}

TEST(MemoryReport, TouchedPagesShowAndThePeakStays) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  const device::MemoryLedger ledger;
  const auto read = [&](const char* what) {
    return MakeMemoryReport(ledger)[what].get<std::int64_t>();
  };
  const std::int64_t before = read("resident_bytes");
  {
    std::vector<char> touched(64 * kMebibyte, 1);
    EXPECT_GE(read("resident_bytes") - before, 60 * kMebibyte);
    EXPECT_NE(touched.back(), 0);
  }
  EXPECT_GE(read("peak_resident_bytes") - before, 60 * kMebibyte);
  EXPECT_LT(read("resident_bytes"), read("peak_resident_bytes"));
}

}  // namespace
}  // namespace ds::telemetry
