// What a plan says of a step's memory, against sums made by hand. That ranks really hold so much is
// tested with ranks (tests/e2e/planned_memory_test.cc).

#include "runtime/plan/zero/step_memory.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "runtime/plan/zero/describe_step.h"

namespace ds::zero {
namespace {

constexpr std::int64_t kLayer = 64 * 1024, kTable = 256 * 1024;  // elements; multiples of any shard
constexpr int kLayers = 4;

// A table, layers, and a head that reads the table and has parameters of its own, if few.
std::vector<UnitShape> MakeUnits() {
  std::vector<UnitShape> units = {{.buckets = {{.numels = {kTable}}}}};
  for (int i = 0; i < kLayers; ++i) units.push_back({.buckets = {{.numels = {kLayer}}}});
  units.push_back({.buckets = {{.numels = {1024}}}, .also_reads = {0}});
  return units;
}
constexpr std::int64_t kAll = kTable + kLayers * kLayer + 1024;

StepMemoryInput MakeInput(int stage, int ranks, bool bf16 = false) {
  config::DsConfig config;
  config.zero_optimization.stage = stage;
  config.bf16.enabled = bf16;
  StepMemoryInput input = DescribeStep(config, {.ranks = ranks});
  input.units = MakeUnits();
  input.activations.resize(input.units.size());
  return input;
}

TEST(StepMemoryTest, WithoutActivationsTheUpdateHasTheModelState) {
  const StepMemory memory = PlanStepMemory(MakeInput(0, 1));
  EXPECT_EQ(memory.peak.total(), 16 * kAll);
  EXPECT_EQ(memory.peak.gradients, 4 * kAll);
  EXPECT_EQ(memory.peak.optimizer_state, 8 * kAll);
  EXPECT_EQ(memory.between_steps.total(), 12 * kAll);
  EXPECT_EQ(memory.peak.comm_buffers, 0);
}

TEST(StepMemoryTest, StageOneHasAllGradientsAndTheFirstShardWhenTheReductionBegins) {
  const StepMemory memory = PlanStepMemory(MakeInput(1, 4));
  EXPECT_EQ(memory.when, "the reduction of gradients");
  EXPECT_EQ(memory.peak.parameters, 4 * kAll);
  EXPECT_EQ(memory.peak.gradients, 4 * kAll + kTable);
  EXPECT_EQ(memory.peak.optimizer_state, 2 * kAll);
  EXPECT_EQ(memory.between_steps.total(), 6 * kAll);
}

TEST(StepMemoryTest, StageThreeHasShardsAndTheBuffersOfTheBlocksThatAreThere) {
  const StepMemory memory = PlanStepMemory(MakeInput(3, 4));
  // The last micro-batch ends with the embedding's backward: all other gradients are shards.
  EXPECT_EQ(memory.peak.parameters, kAll);
  EXPECT_EQ(memory.peak.optimizer_state, 2 * kAll);
  EXPECT_LE(memory.peak.comm_buffers, 4 * (2 * kTable + 3 * kLayer + 2 * 1024));
  EXPECT_GE(memory.peak.comm_buffers, 4 * 2 * kTable);
}

TEST(StepMemoryTest, ALaterStepBeginsWithTheBuffersThatTheFirstHasKept) {
  StepMemoryInput input = MakeInput(2, 4);
  input.activations.back() = {.saved = 0, .forward = 100'000'000, .backward = 0};
  const StepMemory memory = PlanStepMemory(input);
  EXPECT_EQ(memory.when, "the forward pass of block 5");
  EXPECT_EQ(memory.first_step_peak, memory.peak.total() - memory.peak.comm_buffers);
  EXPECT_GE(memory.peak.comm_buffers, 4 * 2 * kLayer);
}

TEST(StepMemoryTest, SixteenBitsHaveMastersInThirtyTwo) {
  const StepMemory memory = PlanStepMemory(MakeInput(0, 1, /*bf16=*/true));
  EXPECT_EQ(memory.peak.parameters, 2 * kAll);
  EXPECT_EQ(memory.peak.gradients, 2 * kAll);
  EXPECT_EQ(memory.peak.master_weights, 4 * kAll);
  EXPECT_EQ(memory.peak.optimizer_state, 8 * kAll);
}

TEST(StepMemoryTest, GradientsThatTravelInAnotherTypeAreCopied) {
  StepMemoryInput input = MakeInput(0, 2);
  input.reduction_type = config::DataType::kBf16;
  const StepMemory memory = PlanStepMemory(input);
  EXPECT_EQ(memory.peak.total(), 16 * kAll) << "stage 0 reduces once, in place or bucket by bucket";
  input = MakeInput(1, 2);
  const std::int64_t plain = PlanStepMemory(input).peak.total();
  input.reduction_type = config::DataType::kBf16;
  EXPECT_EQ(PlanStepMemory(input).peak.total(), plain + 2 * kTable);
}

TEST(StepMemoryTest, ActivationsOfAllBlocksMeetInTheHeadsForwardPass) {
  StepMemoryInput input = MakeInput(0, 1);
  constexpr std::int64_t kSaved = 10'000'000;
  for (BlockActivations& block : input.activations) {
    block = {.saved = kSaved, .forward = kSaved, .backward = kSaved + 500};
  }
  input.activations.back().forward = 2 * kSaved;
  input.batch_bytes = 77;
  const StepMemory memory = PlanStepMemory(input);
  EXPECT_EQ(memory.when, "the forward pass of block 5");
  EXPECT_EQ(memory.peak.activations, 77 + 7 * kSaved);
  EXPECT_EQ(memory.peak.gradients, 0);
  input.micro_batches = 2;
  EXPECT_EQ(PlanStepMemory(input).peak.gradients, 4 * kAll) << "those of the micro-batch before";
}

StepMemoryInput MakeOffloadedInput(config::OffloadDevice device, const StepSetting& setting) {
  config::DsConfig config;
  config.zero_optimization.stage = 3;
  config.zero_optimization.offload_optimizer.device = device;
  config.zero_optimization.offload_param.device = device;
  config.zero_optimization.offload_param.max_in_cpu = 0;
  config.aio.block_size = 1;
  StepMemoryInput input = DescribeStep(config, setting);
  input.units = MakeUnits();
  input.activations.resize(input.units.size());
  return input;
}

TEST(StepMemoryTest, CountsFilesAndOnlyTheirBuffersInMemory) {
  for (const int ranks : {1, 4}) {
    const StepMemory memory =
        PlanStepMemory(MakeOffloadedInput(config::OffloadDevice::kNvme, {.ranks = ranks}));
    EXPECT_EQ(memory.offload.files, 16 * kAll / ranks);
    EXPECT_GT(memory.offload.file_buffers, 0);
    EXPECT_LE(memory.offload.file_buffers, memory.offload.files);
    EXPECT_EQ(memory.peak.total(), memory.peak.comm_buffers);
    EXPECT_EQ(memory.offload.host, 0);
  }
}

TEST(StepMemoryTest, TheFirstBucketsKeepStateAndGradientsByTheRatio) {
  EXPECT_EQ(ChooseResident({60, 30, 10, 20}, 1.0), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(ChooseResident({60, 30, 10, 20}, 0.65), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(ChooseResident({60, 30, 10, 20}, 0.0), (std::vector<bool>{true, true, true, true}));
  StepMemoryInput input = MakeOffloadedInput(config::OffloadDevice::kNvme, {.ranks = 1});
  input.tiers.optimizer_share = 1.0 - 1.5 * kLayer / kAll;
  const StepMemory memory = PlanStepMemory(input);
  const std::int64_t saved = kLayer + 1024;  // the first layer, and the head
  EXPECT_EQ(memory.offload.files, 16 * kAll - 12 * saved);
  EXPECT_EQ(memory.between_steps.optimizer_state, 8 * saved);
}

TEST(StepMemoryTest, NumbersThatNoMemoryHasBoundNothing) {
  config::DsConfig config;
  config.zero_optimization.stage = 3;
  config.zero_optimization.sub_group_size = 4'000'000'000'000'000'000;
  config.zero_optimization.offload_optimizer.device = config::OffloadDevice::kNvme;
  config.zero_optimization.offload_param = {.device = config::OffloadDevice::kNvme,
                                            .buffer_count = 1000,
                                            .buffer_size = 9'000'000'000'000'000'000,
                                            .max_in_cpu = 9'000'000'000'000'000'000};
  const Tiers tiers = PlanTiers(config, /*on_gpu=*/false);
  EXPECT_EQ(tiers.waiting_bytes, 4 * (std::int64_t{64} << 20) * 4);
  EXPECT_EQ(tiers.resident_parameter_bytes, std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ChooseFetchBytes(config.zero_optimization, 4),
            std::numeric_limits<std::int64_t>::max());
}

TEST(StepMemoryTest, UpdatesInTheBackwardPassLeaveOneBlocksGradients) {
  StepMemoryInput input = MakeOffloadedInput(config::OffloadDevice::kNvme, {.ranks = 2});
  input.tiers.updates_in_backward = true;
  StepMemory memory = PlanStepMemory(input);
  EXPECT_EQ(memory.offload.files, 12 * kAll / 2) << "no gradients";
  EXPECT_LE(memory.peak.gradients, 4 * kTable / 2);
  input.micro_batches = 2;
  memory = PlanStepMemory(input);
  EXPECT_EQ(memory.offload.files, 16 * kAll / 2) << "those of the first micro-batch";
  EXPECT_EQ(memory.peak.gradients, 0);

  input.tiers.rolls_back = true;
  EXPECT_EQ(PlanStepMemory(input).offload.files, (16 + 12) * kAll / 2) << "weights and state twice";

  StepMemoryInput alone = MakeInput(1, 1);
  alone.tiers.updates_in_backward = true;
  EXPECT_EQ(PlanStepMemory(alone).peak.total(), 12 * kAll + 4 * (kTable + kLayer))
      << "the head's gradient of the table waits for the table's own";
}

TEST(StepMemoryTest, BuffersOfAnySizeDoNotExceedTheTransfers) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  config::DsConfig config;
  config.zero_optimization.stage = 3;
  config.zero_optimization.sub_group_size = kHuge;
  config.zero_optimization.offload_optimizer = {.device = config::OffloadDevice::kNvme};
  config.zero_optimization.offload_optimizer.buffer_count = kHuge;
  config.zero_optimization.offload_param.device = config::OffloadDevice::kNvme;
  config.zero_optimization.offload_param.buffer_count = kHuge;
  config.zero_optimization.offload_param.buffer_size = kHuge;
  config.zero_optimization.offload_param.max_in_cpu = kHuge;
  config.aio.block_size = 1;
  StepMemoryInput input = DescribeStep(config, {});
  input.units = MakeUnits();
  input.activations.resize(input.units.size());
  const StepMemory memory = PlanStepMemory(input);
  EXPECT_EQ(memory.offload.file_buffers, memory.offload.files);
  EXPECT_EQ(memory.between_steps.parameters, 4 * kAll) << "they all stay here";
}

TEST(StepMemoryTest, OnCpuRanksTheHostIsWhereTheyCompute) {
  const StepMemory memory =
      PlanStepMemory(MakeOffloadedInput(config::OffloadDevice::kCpu, {.ranks = 4}));
  EXPECT_EQ(memory.offload, OffloadedMemory{});
  EXPECT_EQ(memory.between_steps.optimizer_state, 8 * kAll / 4);
}

TEST(StepMemoryTest, AGpuHoldsTheHostStateOfOneBlock) {
  const StepMemory memory =
      PlanStepMemory(MakeOffloadedInput(config::OffloadDevice::kCpu, {.ranks = 4, .on_gpu = true}));
  EXPECT_EQ(memory.offload.host, 12 * kAll / 4) << "gradients stay on the GPU";
  EXPECT_EQ(memory.between_steps.optimizer_state, 0);
  EXPECT_LE(memory.peak.optimizer_state, 8 * (kTable + kLayer) / 4) << "one of them comes";
  EXPECT_LE(memory.peak.parameters, 4 * (kTable + kLayer) / 4);
}

TEST(StepMemoryTest, AnOptimizerOfRangesReadsOneFullRangeFromFiles) {
  config::DsConfig lamb;
  EXPECT_TRUE(DescribeStep(lamb, {}).splits_sub_groups);
  lamb.optimizer.algorithm = config::LambConfig{};
  EXPECT_FALSE(DescribeStep(lamb, {}).splits_sub_groups);
  StepMemoryInput input = MakeOffloadedInput(config::OffloadDevice::kNvme, {.ranks = 2});
  input.tiers.most_elements = 1024;
  input.tiers.waiting_bytes = 0;
  const std::int64_t cut = PlanStepMemory(input).offload.file_buffers;
  input.splits_sub_groups = false;
  const std::int64_t full = PlanStepMemory(input).offload.file_buffers;
  // Weights, gradient and two moments of the table, beside parameters on their way.
  EXPECT_EQ(full, 16 * kTable / 2 + 2 * 4 * kTable / 2);
  EXPECT_LT(cut, full);
}

TEST(StepMemoryTest, MuonKeepsOneValueLessAndMakesItsMatricesOrthogonalOnItsWay) {
  StepMemoryInput input = MakeInput(0, 1);
  input.units[0].buckets[0].ranges = {{.first = 0, .muon = true, .iteration = 1000}};
  const StepMemory alone = PlanStepMemory(input);
  EXPECT_EQ(alone.between_steps.optimizer_state, 8 * kAll - 4 * kTable);
  EXPECT_EQ(alone.peak.other, 4 * (2 * kTable + 1000));
  EXPECT_EQ(alone.between_steps.other, 0);
  input = MakeInput(1, 4);
  input.units[0].buckets[0].ranges = {{.first = 0, .muon = true, .iteration = 1000}};
  EXPECT_EQ(PlanStepMemory(input).peak.other, 4 * (kTable / 4 + 2 * kTable + kTable / 4))
      << "its part and all of it, the result and its part";
}

TEST(StepMemoryTest, RangesBeginWhereShardsMay) {
  StepMemoryInput input = MakeInput(0, 1);
  input.units = {{.buckets = {{.numels = {10, 10, 10}, .ranges = {{0}, {1}, {2}}}}}};
  input.activations.resize(1);
  EXPECT_EQ(PlanStepMemory(input).between_steps.parameters, 4 * 3 * 64);
}

TEST(StepMemoryTest, ParametersThatArePublishedInPartsHaveABufferForOne) {
  StepMemoryInput input = MakeInput(2, 4);
  // So large that the update is the peak.
  input.units[0].buckets[0].ranges = {{.first = 0, .muon = true, .iteration = 10 * kAll}};
  const std::int64_t at_once = PlanStepMemory(input).peak.total();
  input.publish_elements = kTable / 2;
  EXPECT_EQ(PlanStepMemory(input).peak.total() - at_once, 4 * kTable / 2);
}

// Settings of ZeRO++ at stage 3 on 4 ranks, of which 2 are neighbours.
StepMemoryInput MakeRoundedInput() {
  StepMemoryInput input = MakeInput(3, 4);
  input.secondary_ranks = 2;
  for (UnitShape& unit : input.units) unit.buckets[0].rounded = true;
  return input;
}

TEST(StepMemoryTest, SecondaryShardsAreKeptFromTheFirstGatherOn) {
  StepMemoryInput input = MakeRoundedInput();
  const StepMemory near = PlanStepMemory(input);
  input.secondary_ranks = 0;
  const StepMemory plain = PlanStepMemory(input);
  constexpr std::int64_t kAllRounded = kAll - 1024 + 4 * 2048;  // to a whole block on every rank
  EXPECT_EQ(near.between_steps.comm_buffers - plain.between_steps.comm_buffers,
            4 * kAllRounded / 2);
}

TEST(StepMemoryTest, RoundingHasBuffersNextToTheSentData) {
  StepMemoryInput input = MakeRoundedInput();
  const std::int64_t exact = PlanStepMemory(input).peak.total();
  input.rounds_weights = true;
  const std::int64_t weights = PlanStepMemory(input).peak.total();
  input.rounds_gradients = true;
  const std::int64_t both = PlanStepMemory(input).peak.total();
  input.keeps_lost_values = true;
  const std::int64_t all = PlanStepMemory(input).peak.total();
  EXPECT_LT(exact, both);
  EXPECT_LE(exact, weights);
  EXPECT_LT(weights, both);
  EXPECT_LT(both + kAll / 2, all)
      << "a byte for each value on the near way, half as many on the far";
}

constexpr Pass::Kind kF = Pass::Kind::kForward, kB = Pass::Kind::kBackward;

TEST(StepMemoryTest, PassesInTheOrderOfOneStageHoldTheSame) {
  for (const int stage : {0, 1, 2, 3}) {
    StepMemoryInput input = MakeInput(stage, 2);
    for (BlockActivations& block : input.activations) block = {1000, 2000, 3000};
    input.micro_batches = 3;
    const StepMemory by_sub_group = PlanStepMemory(input);
    for (std::int64_t m = 0; m < 3; ++m) {
      input.passes.insert(input.passes.end(), {{kF, m}, {kB, m}});
    }
    const StepMemory listed = PlanStepMemory(input);
    EXPECT_EQ(listed.peak, by_sub_group.peak);
    EXPECT_EQ(listed.peak_activations, by_sub_group.peak_activations);
    EXPECT_EQ(listed.between_steps, by_sub_group.between_steps);
  }
}

TEST(StepMemoryTest, InFlightMicroBatchesAreHeldWithTheirSends) {
  StepMemoryInput input = MakeInput(0, 2);
  for (BlockActivations& block : input.activations) block = {1000, 2000, 3000};
  input.batch_bytes = 50;
  input.micro_batches = 3;
  input.passes = {{kF, 0}, {kB, 0}, {kF, 1}, {kB, 1}, {kF, 2}, {kB, 2}};
  const std::int64_t one = PlanStepMemory(input).peak_activations;
  const auto units = static_cast<std::int64_t>(input.units.size());
  EXPECT_EQ(one, 50 + (units - 1) * 1000 + 3000);
  input.passes = {{kF, 0}, {kF, 1}, {kB, 0}, {kF, 2}, {kB, 1}, {kB, 2}};
  EXPECT_EQ(PlanStepMemory(input).peak_activations, one + 50 + units * 1000);
  input.sent_bytes = 7;
  EXPECT_EQ(PlanStepMemory(input).peak_activations, one + 50 + units * 1000 + 2 * 7);
  input.returned_bytes = 9;
  EXPECT_EQ(PlanStepMemory(input).peak_activations, one + 50 + units * 1000 + 2 * 7 + 9);
}

TEST(StepMemoryTest, ChunksHoldTheirOwnBlocksAlone) {
  StepMemoryInput input = MakeInput(0, 2);
  for (BlockActivations& block : input.activations) block = {1000, 2000, 3000};
  const auto units = static_cast<int>(input.units.size());
  const UnitRange first{0, 2}, second{2, units};
  input.batch_bytes = 50;
  input.passes = {{kF, 0, first},
                  {kF, 1, first},
                  {kF, 0, second, /*begins=*/false},
                  {kB, 0, second, /*begins=*/false},
                  {kB, 0, first},
                  {kF, 1, second, /*begins=*/false},
                  {kB, 1, second, /*begins=*/false},
                  {kB, 1, first}};
  // Of the second micro-batch the first chunk has two blocks.
  EXPECT_EQ(PlanStepMemory(input).peak_activations, 2 * 50 + 2 * 1000 + (units - 1) * 1000 + 3000);
}

TEST(StepMemoryTest, HoldsInputsOfWeightGradientsUntilTheyRun) {
  StepMemoryInput input = MakeInput(0, 2);
  for (BlockActivations& block : input.activations) block = {1000, 1000, 1500, 400, 600};
  const auto units = static_cast<std::int64_t>(input.units.size());
  constexpr auto kI = Pass::Kind::kInputGradient, kW = Pass::Kind::kWeightGradient;
  input.passes = {{kF, 0}, {kI, 0}, {kF, 1}, {kW, 0}, {kI, 1}, {kW, 1}};
  EXPECT_EQ(PlanStepMemory(input).peak_activations, units * 400 + units * 1000);
  input.passes = {{kF, 0}, {kI, 0}, {kW, 0}, {kF, 1}, {kI, 1}, {kW, 1}};
  EXPECT_EQ(PlanStepMemory(input).peak_activations, (units - 1) * 1000 + 1500);
}

TEST(StepMemoryTest, ManyMicroBatchesHoldTheSameAsAFew) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2, 4}) {
      for (const bool overlap : {false, true}) {
        for (const std::int64_t budget : {std::int64_t{0}, 4 * kLayer, 16 * kAll}) {
          StepMemoryInput input = MakeInput(stage, ranks);
          input.overlap = overlap;
          input.budgets.prefetch_bytes = input.budgets.reduce_bytes = budget;
          input.budgets.reuse_bytes = budget;
          input.budgets.persistent_parameter_bytes = budget / 2;
          for (BlockActivations& block : input.activations) block = {1000, 2000, 3000};
          SCOPED_TRACE(stage * 1000 + ranks * 100 + overlap * 10);
          std::vector<std::int64_t> peaks;
          for (const std::int64_t count : {1, 2, 3, 4, 1'000'000'000}) {
            input.micro_batches = count;
            peaks.push_back(PlanStepMemory(input).peak.total());
          }
          EXPECT_LE(peaks[0], peaks[1]);
          EXPECT_LE(peaks[1], peaks[2]);
          EXPECT_EQ(peaks[2], peaks[3]);
          EXPECT_EQ(peaks[3], peaks[4]);
        }
      }
    }
  }
}

TEST(DescribeStepTest, CallsOverlapWhereTheRanksThatShareStateAreOnSeveralHosts) {
  config::DsConfig config;
  config.zero_optimization.stage = 3;
  config.zero_optimization.overlap_comm = true;
  EXPECT_FALSE(DescribeStep(config, {.ranks = 4}).overlap);
  EXPECT_TRUE(DescribeStep(config, {.ranks = 4, .ranks_of_host = 2}).overlap);
  config.zero_optimization.mics_shard_size = 2;
  EXPECT_FALSE(DescribeStep(config, {.ranks = 4, .ranks_of_host = 2}).overlap);
  EXPECT_TRUE(DescribeStep(config, {.ranks = 6, .ranks_of_host = 3}).overlap);
}

}  // namespace
}  // namespace ds::zero
