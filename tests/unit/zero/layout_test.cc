#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/zero/flat_layout.h"
#include "runtime/zero/model_state_bytes.h"
#include "runtime/zero/zero_stage.h"

namespace ds::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ZeroStage, IsARowOfBooleans) {
  EXPECT_EQ(ShardingOfStage(0, 4), (Sharding{}));
  EXPECT_EQ(ShardingOfStage(1, 4), (Sharding{.optimizer = true}));
  EXPECT_EQ(ShardingOfStage(2, 4), (Sharding{.optimizer = true, .gradients = true}));
  EXPECT_EQ(ShardingOfStage(3, 4),
            (Sharding{.optimizer = true, .gradients = true, .parameters = true}));
}

TEST(ZeroStage, OneRankShardsNothing) { EXPECT_EQ(ShardingOfStage(3, 1), (Sharding{})); }

TEST(FlatLayout, AlignsParametersAndPadsToEqualShards) {
  const FlatLayout layout({10, 40, 32}, 3);
  EXPECT_EQ(layout.parameter(0), (FlatRange{0, 10}));
  EXPECT_EQ(layout.parameter(1), (FlatRange{32, 40}));
  EXPECT_EQ(layout.parameter(2), (FlatRange{96, 32}));
  EXPECT_EQ(layout.padded_numel(), 192);
  EXPECT_EQ(layout.shard_numel(), 64);
  EXPECT_EQ(layout.shard(2), (FlatRange{128, 64}));
  EXPECT_THAT(layout.gaps(), ElementsAre(FlatRange{10, 22}, FlatRange{72, 24}, FlatRange{128, 64}));
}

TEST(FlatLayout, PiecesAreWhatOfEachParameterLiesInARange) {
  const FlatLayout layout({10, 40, 32}, 3);
  EXPECT_THAT(layout.PiecesOf(layout.shard(0)),
              ElementsAre(Piece{.parameter = 0, .count = 10},
                          Piece{.parameter = 1, .range_start = 32, .count = 32}));
  EXPECT_THAT(
      layout.PiecesOf(layout.shard(1)),
      ElementsAre(Piece{.parameter = 1, .parameter_start = 32, .range_start = 0, .count = 8},
                  Piece{.parameter = 2, .parameter_start = 0, .range_start = 32, .count = 32}));
  EXPECT_THAT(layout.PiecesOf(layout.shard(2)), IsEmpty()) << "padding only";
}

TEST(FlatLayout, AnEmptyParameterTakesNoRoom) {
  const FlatLayout layout({0, 64}, 1);
  EXPECT_EQ(layout.parameter(1), (FlatRange{0, 64}));
  EXPECT_EQ(layout.padded_numel(), 64);
  EXPECT_THAT(layout.gaps(), IsEmpty());
}

ModelStateInputs Inputs(int stage, precision::DtypePolicy dtypes) {
  return {.trainable = 1'000'000,
          .world_size = 4,
          .sharding = ShardingOfStage(stage, 4),
          .dtypes = dtypes};
}

constexpr precision::DtypePolicy kBf16{
    .parameter = c10::kBFloat16, .gradient = c10::kBFloat16, .reduction = c10::kBFloat16};

// The ZeRO paper's table: 16 P for mixed-precision Adam, divided stage by stage.
TEST(ModelStateBytes, Bf16IsSixteenBytesAParameterDividedStageByStage) {
  EXPECT_EQ(ExpectedModelStateBytes(Inputs(0, kBf16)).total(), 16'000'000);
  EXPECT_EQ(ExpectedModelStateBytes(Inputs(1, kBf16)).total(), 4'000'000 + 12'000'000 / 4);
  EXPECT_EQ(ExpectedModelStateBytes(Inputs(2, kBf16)).total(), 2'000'000 + 14'000'000 / 4);
  EXPECT_EQ(ExpectedModelStateBytes(Inputs(3, kBf16)).total(), 16'000'000 / 4);
}

TEST(ModelStateBytes, Fp32HasNoMasterWeights) {
  const ModelStateBytes bytes = ExpectedModelStateBytes(Inputs(1, {}));
  EXPECT_EQ(bytes.parameters, 4'000'000);
  EXPECT_EQ(bytes.gradients, 4'000'000);
  EXPECT_EQ(bytes.optimizer_state, 2'000'000);
  EXPECT_EQ(bytes.master_weights, 0);
}

TEST(ModelStateBytes, MastersAndStateInBf16HalveTheSixteenBytes) {
  precision::DtypePolicy dtypes = kBf16;
  dtypes.master = c10::kBFloat16;
  EXPECT_EQ(ExpectedModelStateBytes(Inputs(1, dtypes)).master_weights, 0);
  EXPECT_EQ(ExpectedModelStateBytes(Inputs(3, dtypes)).total(), 12'000'000 / 4);
  dtypes.state = c10::kBFloat16;
  EXPECT_EQ(ExpectedModelStateBytes(Inputs(1, dtypes)).total(), 4'000'000 + 4'000'000 / 4);
  EXPECT_EQ(ExpectedModelStateBytes(Inputs(3, dtypes)).total(), 8'000'000 / 4);
}

TEST(ModelStateBytes, Fp32AccumulationTakesFourBytesAndFrozenParametersOnlyTheirOwn) {
  precision::DtypePolicy dtypes = kBf16;
  dtypes.gradient = c10::kFloat;
  ModelStateInputs inputs = Inputs(0, dtypes);
  EXPECT_EQ(ExpectedModelStateBytes(inputs).gradients, 4'000'000);
  inputs.frozen = 500'000;
  EXPECT_EQ(ExpectedModelStateBytes(inputs).total(), 18'000'000 + 1'000'000);
}

}  // namespace
}  // namespace ds::zero
