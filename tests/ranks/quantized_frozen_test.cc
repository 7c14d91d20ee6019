// Frozen matrices that are kept and gathered in 8 bits, below adapters that are trained
// (zero_optimization.zero_quantized_nontrainable_weights).

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/engine/gathered_parameters.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/plan/zero/quantized_bytes.h"
#include "tests/ranks/decoder_run.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

// Of matrices with two blocks and with five.
constexpr char kModel[] = R"({"model_type":"llama","vocab_size":48,"hidden_size":64,
    "intermediate_size":160,"num_hidden_layers":2,"num_attention_heads":4,
    "num_key_value_heads":4,"max_position_embeddings":16})";
constexpr int kRanks = 4;

DecoderRun PlainRun() { return {.model = kModel, .stage = 3, .lora_rank = 4}; }
DecoderRun RoundedRun() {
  DecoderRun run = PlainRun();
  run.quantizes_frozen = true;
  return run;
}

bool IsAdapter(const std::string& name) { return name.find("lora_") != std::string::npos; }

// Nothing is off by more than a step of its block.
void ExpectWithinASteps(const at::Tensor& exact, const at::Tensor& rounded,
                        const std::string& name) {
  const at::Tensor flat = exact.flatten(), got = rounded.flatten();
  for (std::int64_t start = 0; start < flat.numel(); start += zero::kQuantizationBlock) {
    const std::int64_t count = std::min(zero::kQuantizationBlock, flat.numel() - start);
    const double largest = flat.narrow(0, start, count).abs().max().item<double>();
    const double error =
        (flat.narrow(0, start, count) - got.narrow(0, start, count)).abs().max().item<double>();
    EXPECT_LE(error, 1.0001 * largest / 128) << name << " from " << start;
  }
}

TEST(QuantizedFrozen, MatricesAreWithinAStepAndNormsAsTheyWere) {
  const DecoderOutcome plain = RunDecoder(PlainRun(), kRanks, kTrainedSteps);
  const DecoderOutcome rounded = RunDecoder(RoundedRun(), kRanks, kTrainedSteps);
  int matrices = 0;
  ASSERT_EQ(rounded.parameters.size(), plain.parameters.size());
  for (const auto& [name, value] : plain.parameters) {
    const at::Tensor& got = rounded.parameters.at(name);
    if (IsAdapter(name)) continue;
    if (value.dim() == 1) {
      EXPECT_TRUE(got.equal(value)) << name;
      continue;
    }
    ++matrices;
    EXPECT_FALSE(got.equal(value)) << name;
    ExpectWithinASteps(value, got, name);
  }
  EXPECT_EQ(matrices, 2 * 7 + 2);
  ASSERT_EQ(rounded.steps.size(), plain.steps.size());
  for (std::size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_NE(rounded.steps[i].loss, plain.steps[i].loss);
    EXPECT_NEAR(rounded.steps[i].loss, plain.steps[i].loss, 0.005 * plain.steps[i].loss);
  }
  EXPECT_LT(rounded.steps.back().loss, rounded.steps.front().loss);
}

// Blocks are cut from each parameter's beginning, so that no cut among ranks changes a bit.
TEST(QuantizedFrozen, TheSameBitsAreKeptHoweverManyRanksShareThem) {
  const DecoderOutcome expected = RunDecoder(RoundedRun(), kRanks, kTrainedSteps);
  for (const int ranks : {1, 2}) {
    const DecoderOutcome got = RunDecoder(RoundedRun(), ranks, kTrainedSteps);
    for (const auto& [name, value] : expected.parameters) {
      if (IsAdapter(name)) continue;
      EXPECT_TRUE(got.parameters.at(name).equal(value)) << name << " on " << ranks;
    }
    ExpectSameSteps(expected.steps, got.steps);
  }
}

TEST(QuantizedFrozen, SecondaryShardsAndRecomputingChangeNoBit) {
  const DecoderOutcome expected = RunDecoder(RoundedRun(), kRanks, kTrainedSteps);
  std::vector<DecoderRun> runs(2, RoundedRun());
  runs[0].hpz_partition_size = 2;
  runs[1].recompute = {.kind = config::RecomputeChoice::Kind::kBlocks};
  for (const DecoderRun& run : runs) {
    const DecoderOutcome got = RunDecoder(run, kRanks, kTrainedSteps);
    for (std::size_t i = 0; i < expected.steps.size(); ++i) {
      EXPECT_EQ(got.steps[i].loss, expected.steps[i].loss) << i;
    }
    for (const auto& [name, value] : expected.parameters) {
      EXPECT_TRUE(got.parameters.at(name).equal(value)) << name;
    }
  }
}

struct Held {
  std::int64_t gathered = 0;    // bytes in a step
  std::int64_t parameters = 0;  // bytes between steps
};

Held TrainAndMeasure(const DecoderRun& run) {
  Held held;
  testing::RunRanks(kRanks, [&](comm::Communicator& world) {
    device::MemoryLedger ledger;
    const auto engine = MakeDecoderEngine(run, world, &ledger);
    TrainDecoder(*engine, run, 1);
    const auto before = world.traffic().of(comm::TrafficKind::kAllGather).bytes;
    TrainDecoder(*engine, run, 2);
    const auto after = world.traffic().of(comm::TrafficKind::kAllGather).bytes;
    if (world.rank() != 0) return;
    held = {static_cast<std::int64_t>(after - before),
            ledger.Bytes(device::MemoryUse::kParameters, device::MemoryTier::kHost)};
  });
  return held;
}

// Of fp32; adapters and norms, exact, are a tenth of the model.
TEST(QuantizedFrozen, AboutAQuarterOfTheBytesIsKeptAndTravels) {
  const Held plain = TrainAndMeasure(PlainRun()), rounded = TrainAndMeasure(RoundedRun());
  EXPECT_GT(rounded.parameters, 0);
  EXPECT_LT(rounded.parameters, plain.parameters * 36 / 100);
  EXPECT_GT(rounded.gathered, 0);
  EXPECT_LT(rounded.gathered, plain.gathered * 36 / 100);
}

// What is saved is what the ranks computed with; loaded again it is not rounded a second time.
TEST(QuantizedFrozen, CheckpointsResumeInOtherWorldsAndStages) {
  const std::vector<StepResult> through = RunDecoder(RoundedRun(), kRanks, 4).steps;
  DecoderRun at_2 = PlainRun();
  at_2.stage = 2;
  for (const auto& [run, ranks] : {std::pair(RoundedRun(), 2), std::pair(at_2, 2)}) {
    const auto steps = GoOnFromCheckpoint(RoundedRun(), kRanks, run, ranks);
    ASSERT_EQ(steps.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(steps[i].loss, through[i + 2].loss, 1e-5);
  }
}

TEST(QuantizedFrozen, WritesAreRoundedForAllRanks) {
  constexpr std::int64_t kBlock = zero::kQuantizationBlock;
  const std::string name = "layer.1.w";
  testing::RunRanks(2, [&](comm::Communicator& world) {
    TinyRun run{.stage = 3, .shape = {.width = 64}};
    run.zero.quantized_frozen_weights = true;
    const auto model = MakeTinyModel(run.shape, at::TensorOptions(at::kFloat));
    at::Tensor parameter = model->block(2).named_parameters()["w"];
    parameter.set_requires_grad(false);
    const auto engine = Engine::create(model, TinyConfig(run), {.world = &world}).value();
    const at::Tensor old = TensorAccess(*engine).GetFullFp32Param(name).value().flatten();
    ASSERT_EQ(old.numel(), 2 * kBlock);
    const Status status = engine::WithGatheredParameters(*engine, {name}, 0, [&] {
      if (world.rank() == 0) parameter.detach().flatten().narrow(0, 0, 5).fill_(10.0);
      return OkStatus();
    });
    ASSERT_TRUE(status.ok()) << status.message();
    const at::Tensor now = TensorAccess(*engine).GetFullFp32Param(name).value().flatten();
    EXPECT_TRUE(now.narrow(0, kBlock, kBlock).equal(old.narrow(0, kBlock, kBlock)));
    const auto error = [](const at::Tensor& values, const at::Tensor& of) {
      return (values - of).abs().max().item<double>();
    };
    EXPECT_LE(error(now.narrow(0, 0, 5), at::full({5}, 10.0)), 10.0 / 128 * 1.0001);
    EXPECT_LE(error(now.narrow(0, 5, kBlock - 5), old.narrow(0, 5, kBlock - 5)),
              10.0 / 256 * 1.0001);
  });
}

}  // namespace
}  // namespace ds::tests
