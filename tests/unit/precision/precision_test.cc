#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/precision/dtype_policy.h"
#include "runtime/precision/finite_check.h"

namespace ds::precision {
namespace {

TEST(DtypePolicy, IsFp32ThroughoutByDefaultAndHasNoMasterWeights) {
  const auto policy = MakeDtypePolicy({});
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(policy->parameter, c10::kFloat);
  EXPECT_EQ(policy->gradient, c10::kFloat);
  EXPECT_EQ(policy->reduction, c10::kFloat);
  EXPECT_FALSE(policy->has_master_weights());
}

TEST(DtypePolicy, Bf16BringsMasterWeightsAndBf16Gradients) {
  config::DsConfig config;
  config.bf16.enabled = true;
  const auto policy = MakeDtypePolicy(config);
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(policy->parameter, c10::kBFloat16);
  EXPECT_EQ(policy->gradient, c10::kBFloat16);
  EXPECT_EQ(policy->reduction, c10::kBFloat16);
  EXPECT_TRUE(policy->has_master_weights());
}

TEST(DtypePolicy, AccumulationAndReductionCanBeChosen) {
  config::DsConfig config;
  config.bf16.enabled = true;
  config.grad_accum_dtype = config::DataType::kFp32;
  config.communication_data_type = config::DataType::kFp32;
  const auto policy = MakeDtypePolicy(config);
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(policy->gradient, c10::kFloat);
  EXPECT_EQ(policy->reduction, c10::kFloat);
}

TEST(DtypePolicy, RefusesFp16ByKey) {
  config::DsConfig config;
  config.grad_accum_dtype = config::DataType::kFp16;
  const auto policy = MakeDtypePolicy(config);
  ASSERT_FALSE(policy.ok());
  EXPECT_EQ(policy.status().code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(policy.status().message().starts_with("data_types.grad_accum_dtype"));
}

TEST(FirstNonFinite, NamesPlaceAndKind) {
  at::Tensor values = at::zeros({100});
  EXPECT_FALSE(FirstNonFinite(values).has_value());
  values[60] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(FirstNonFinite(values)->index, 60);
  EXPECT_EQ(FirstNonFinite(values)->kind, "NaN");
  values[7] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(FirstNonFinite(values)->index, 7);
  EXPECT_EQ(FirstNonFinite(values)->kind, "-Inf");
}

}  // namespace
}  // namespace ds::precision
