#include "runtime/config/model_state.h"

#include <gtest/gtest.h>

namespace ds::config {
namespace {

TEST(ZeroStage, IsARowOfBooleans) {
  EXPECT_EQ(ShardingOfStage(0, 4), (Sharding{}));
  EXPECT_EQ(ShardingOfStage(1, 4), (Sharding{.optimizer = true}));
  EXPECT_EQ(ShardingOfStage(2, 4), (Sharding{.optimizer = true, .gradients = true}));
  EXPECT_EQ(ShardingOfStage(3, 4),
            (Sharding{.optimizer = true, .gradients = true, .parameters = true}));
}

TEST(ZeroStage, OneRankShardsNothing) { EXPECT_EQ(ShardingOfStage(3, 1), (Sharding{})); }

ModelStateInputs Inputs(int stage, StateTypes types) {
  return {.trainable = 1'000'000,
          .shard_ranks = 4,
          .sharding = ShardingOfStage(stage, 4),
          .types = types};
}

constexpr StateTypes kBf16{.parameter = DataType::kBf16, .gradient = DataType::kBf16};

// The ZeRO paper's table: 16 P for mixed-precision Adam, divided stage by stage.
TEST(ModelStateBytes, Bf16IsSixteenBytesAParameterDividedStageByStage) {
  EXPECT_EQ(CountModelStateBytes(Inputs(0, kBf16)).total(), 16'000'000);
  EXPECT_EQ(CountModelStateBytes(Inputs(1, kBf16)).total(), 4'000'000 + 12'000'000 / 4);
  EXPECT_EQ(CountModelStateBytes(Inputs(2, kBf16)).total(), 2'000'000 + 14'000'000 / 4);
  EXPECT_EQ(CountModelStateBytes(Inputs(3, kBf16)).total(), 16'000'000 / 4);
}

TEST(ModelStateBytes, Fp32HasNoMasterWeights) {
  const ModelStateBytes bytes = CountModelStateBytes(Inputs(1, {}));
  EXPECT_EQ(bytes.parameters, 4'000'000);
  EXPECT_EQ(bytes.gradients, 4'000'000);
  EXPECT_EQ(bytes.optimizer_state, 2'000'000);
  EXPECT_EQ(bytes.master_weights, 0);
}

TEST(ModelStateBytes, MastersAndStateInBf16HalveTheSixteenBytes) {
  StateTypes types = kBf16;
  types.master = DataType::kBf16;
  EXPECT_EQ(CountModelStateBytes(Inputs(1, types)).master_weights, 0);
  EXPECT_EQ(CountModelStateBytes(Inputs(3, types)).total(), 12'000'000 / 4);
  types.state = DataType::kBf16;
  EXPECT_EQ(CountModelStateBytes(Inputs(1, types)).total(), 4'000'000 + 4'000'000 / 4);
  EXPECT_EQ(CountModelStateBytes(Inputs(3, types)).total(), 8'000'000 / 4);
}

TEST(ModelStateBytes, Fp32AccumulationTakesFourBytesAndFrozenParametersOnlyTheirOwn) {
  StateTypes types = kBf16;
  types.gradient = DataType::kFp32;
  ModelStateInputs inputs = Inputs(0, types);
  EXPECT_EQ(CountModelStateBytes(inputs).gradients, 4'000'000);
  inputs.frozen = 500'000;
  EXPECT_EQ(CountModelStateBytes(inputs).total(), 18'000'000 + 1'000'000);
}

TEST(StateTypes, AreBf16WithFp32MastersUnlessAskedOtherwise) {
  DsConfig config;
  EXPECT_FALSE(ChooseStateTypes(config).has_master_weights());
  config.bf16.enabled = true;
  EXPECT_EQ(ChooseStateTypes(config).parameter, DataType::kBf16);
  EXPECT_EQ(ChooseStateTypes(config).gradient, DataType::kBf16);
  EXPECT_EQ(ChooseStateTypes(config).master, DataType::kFp32);
  EXPECT_EQ(ChooseStateTypes(config).state, DataType::kFp32);
  config.grad_accum_dtype = DataType::kFp32;
  EXPECT_EQ(ChooseStateTypes(config).gradient, DataType::kFp32);
  config.bf16.bf16_master_weights_and_grads = true;
  EXPECT_FALSE(ChooseStateTypes(config).has_master_weights());
}

}  // namespace
}  // namespace ds::config
