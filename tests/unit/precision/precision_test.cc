#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/base/isa_probe.h"
#include "runtime/device/autocast_scope.h"
#include "runtime/device/counting_allocator.h"
#include "runtime/device/dtype_policy.h"
#include "runtime/device/finite_check.h"
#include "runtime/device/gradient_reduction.h"
#include "runtime/engine/loss_scaler.h"

namespace ds::precision {
namespace {

TEST(DtypePolicy, IsFp32ThroughoutByDefaultAndHasNoMasterWeights) {
  const auto policy = MakeDtypePolicy({});
  EXPECT_EQ(policy.parameter, c10::kFloat);
  EXPECT_EQ(policy.gradient, c10::kFloat);
  EXPECT_EQ(policy.reduction, c10::kFloat);
  EXPECT_FALSE(policy.has_master_weights());
}

TEST(DtypePolicy, Bf16BringsMasterWeightsAndBf16Gradients) {
  config::DsConfig config;
  config.bf16.enabled = true;
  const auto policy = MakeDtypePolicy(config);
  EXPECT_EQ(policy.parameter, c10::kBFloat16);
  EXPECT_EQ(policy.gradient, c10::kBFloat16);
  EXPECT_EQ(policy.reduction, c10::kBFloat16);
  EXPECT_TRUE(policy.has_master_weights());
}

TEST(DtypePolicy, AccumulationAndReductionCanBeChosen) {
  config::DsConfig config;
  config.bf16.enabled = true;
  config.grad_accum_dtype = config::DataType::kFp32;
  config.communication_data_type = config::DataType::kFp32;
  const auto policy = MakeDtypePolicy(config);
  EXPECT_EQ(policy.gradient, c10::kFloat);
  EXPECT_EQ(policy.reduction, c10::kFloat);
}

TEST(DtypePolicy, Fp16BringsMasterWeightsAndFp16Gradients) {
  config::DsConfig config;
  config.fp16.enabled = true;
  const auto policy = MakeDtypePolicy(config);
  EXPECT_EQ(policy.parameter, c10::kHalf);
  EXPECT_EQ(policy.gradient, c10::kHalf);
  EXPECT_EQ(policy.reduction, c10::kHalf);
  EXPECT_TRUE(policy.has_master_weights());
}

TEST(DtypePolicy, MastersAndStateAreNarrowOnlyWhereTheConfigSays) {
  config::DsConfig config;
  config.bf16 = {.enabled = true, .bf16_master_weights_and_grads = true};
  auto policy = MakeDtypePolicy(config);
  EXPECT_EQ(policy.master, c10::kBFloat16);
  EXPECT_EQ(policy.state, c10::kFloat);
  EXPECT_FALSE(policy.has_master_weights()) << "the parameters are updated themselves";
  config.bf16.bf16_optimizer_states = true;
  EXPECT_EQ(MakeDtypePolicy(config).state, c10::kBFloat16);
  config.bf16.bf16_master_weights_and_grads = false;
  EXPECT_EQ(MakeDtypePolicy(config).master, c10::kFloat);
  EXPECT_EQ(MakeDtypePolicy(config).state, c10::kBFloat16);
  EXPECT_TRUE(MakeDtypePolicy(config).has_master_weights());
  config.bf16.bf16_master_weights_and_grads = true;
  config.bf16.enabled = false;
  EXPECT_EQ(MakeDtypePolicy(config).master, c10::kFloat);
  EXPECT_EQ(MakeDtypePolicy(config).state, c10::kFloat);
  config.fp16 = {.enabled = true, .fp16_master_weights_and_grads = true};
  config.bf16 = {};
  EXPECT_EQ(MakeDtypePolicy(config).master, c10::kHalf);
  EXPECT_EQ(MakeDtypePolicy(config).state, c10::kFloat);
  config.optimizer.fp32_optimizer_states = false;
  EXPECT_EQ(MakeDtypePolicy(config).state, c10::kHalf);
}

TEST(DtypePolicy, AutocastLeavesEverythingKeptInFp32) {
  config::DsConfig config;
  EXPECT_FALSE(MakeDtypePolicy(config).autocast.has_value());
  config.torch_autocast.enabled = true;
  const auto policy = MakeDtypePolicy(config);
  EXPECT_EQ(policy.autocast, c10::kBFloat16);
  EXPECT_EQ(policy.parameter, c10::kFloat);
  EXPECT_EQ(policy.gradient, c10::kFloat);
  EXPECT_EQ(policy.reduction, c10::kFloat);
  EXPECT_FALSE(policy.has_master_weights());
}

TEST(Autocast, CastsOperandsOfProductsWhileItsScopeLives) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  const at::Tensor a = at::ones({2, 2});
  {
    const AutocastScope off(std::nullopt, at::kCPU);
    EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kFloat);
    const AutocastScope scope(at::kBFloat16, at::kCPU);
    EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kBFloat16);
    EXPECT_EQ(a.add(a).scalar_type(), at::kFloat);
    const AutocastScope inner(std::nullopt, at::kCPU);
    EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kBFloat16) << "nothing asked, nothing changed";
  }
  EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kFloat);
}

TEST(GradientReduction, DividesWhereTheConfigSays) {
  config::DsConfig config;
  EXPECT_TRUE(MakeGradientReduction(config, 4).average);
  config.gradient_predivide_factor = 8.0;
  const GradientReduction predivided = MakeGradientReduction(config, 4);
  EXPECT_FALSE(predivided.average);
  EXPECT_EQ(predivided.before, 1.0 / 8);
  EXPECT_EQ(predivided.after, 8.0 / 4);
  config.prescale_gradients = true;  // the predivide factor counts without it only
  EXPECT_EQ(MakeGradientReduction(config, 4).before, 1.0 / 4);
  EXPECT_EQ(MakeGradientReduction(config, 4).after, 1.0);
  config.gradient_allreduce_op = config::GradientReduceOp::kSum;
  EXPECT_FALSE(MakeGradientReduction(config, 4).average);
  EXPECT_EQ(MakeGradientReduction(config, 4).before, 1.0);
}

// Of thirty-two ranks four have all experts between them and eight the same ones, whose sum is that
// of all.
TEST(GradientReduction, OfExpertsCountsTheRanksOfTheirTokens) {
  config::DsConfig config;
  const GradientReduction average = ForExperts(MakeGradientReduction(config, 32), 4);
  EXPECT_TRUE(average.average);
  EXPECT_EQ(average.before, 1.0);
  EXPECT_EQ(average.after, 1.0 / 4);
  config.prescale_gradients = true;  // factors of a sum are those of all ranks already
  const GradientReduction sum = ForExperts(MakeGradientReduction(config, 32), 4);
  EXPECT_EQ(sum.before, 1.0 / 32);
  EXPECT_EQ(sum.after, 1.0);
}

TEST(MakeLossScaler, TheStageDecidesTheRule) {
  config::DsConfig config;
  EXPECT_EQ(MakeLossScaler(config).scale(), 1.0);
  config.fp16 = {.enabled = true, .initial_scale_power = 4, .hysteresis = 2};
  LossScaler stage0 = MakeLossScaler(config);
  EXPECT_EQ(stage0.scale(), 16.0);
  ASSERT_TRUE(stage0.Update(true).ok());
  EXPECT_EQ(stage0.scale(), 8.0);
  config.zero_optimization.stage = 1;
  LossScaler zero = MakeLossScaler(config);
  ASSERT_TRUE(zero.Update(true).ok());
  EXPECT_EQ(zero.scale(), 16.0) << "hysteresis";
  config.fp16.loss_scale = 3.0;
  EXPECT_EQ(MakeLossScaler(config).scale(), 3.0);
}

TEST(FirstNonFinite, NamesPlaceAndKind) {
  at::Tensor values = at::zeros({100});
  EXPECT_FALSE(FindFirstNonFinite(values).has_value());
  values[60] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(FindFirstNonFinite(values)->index, 60);
  EXPECT_EQ(FindFirstNonFinite(values)->kind, "NaN");
  values[7] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(FindFirstNonFinite(values)->index, 7);
  EXPECT_EQ(FindFirstNonFinite(values)->kind, "-Inf");
}

// After an overflow every element is one.
TEST(FirstNonFinite, NeedsConstantMemory) {
  device::CountingAllocator& allocator = device::CountingAllocator::Install();
  at::Tensor values = at::zeros({4 << 20});
  values.narrow(0, 3 << 20, 1 << 20).fill_(std::numeric_limits<float>::infinity());
  allocator.ResetPeak();
  const std::int64_t before = allocator.BytesOut();
  EXPECT_EQ(FindFirstNonFinite(values)->index, 3 << 20);
  EXPECT_LT(allocator.PeakBytesOut() - before, 2 << 20);
}

}  // namespace
}  // namespace ds::precision
