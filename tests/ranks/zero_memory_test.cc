// The model state that the ledger shows and that LibTorch's allocator really holds is what the
// formula says, at every stage and in every precision.

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/config/model_state.h"
#include "runtime/device/counting_allocator.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/weights/model_config.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using device::MemoryLedger;
using device::MemoryTier;
using device::MemoryUse;

constexpr TinyShape kShape{.vocabulary = 1500, .width = 200, .layers = 6};

class ZeroMemory : public ::testing::TestWithParam<std::tuple<int, int, Precision>> {
 protected:
  static void SetUpTestSuite() { allocator_ = &device::CountingAllocator::Install(); }
  static device::CountingAllocator* allocator_;
};

device::CountingAllocator* ZeroMemory::allocator_ = nullptr;

void ExpectWithin2Percent(std::int64_t actual, std::int64_t expected, const char* what) {
  EXPECT_NEAR(static_cast<double>(actual), static_cast<double>(expected),
              0.02 * static_cast<double>(expected))
      << what;
}

config::ModelStateBytes Expected(const TinyRun& run, int world_size) {
  // Per layer one frozen vector, the scale.
  const std::int64_t frozen = kShape.layers * kShape.width;
  const std::int64_t layer = kShape.width * kShape.width + kShape.width + 3;
  const std::int64_t trainable =
      kShape.vocabulary * kShape.width + kShape.layers * layer + kShape.width;
  const std::int64_t matrices =
      kShape.vocabulary * kShape.width + kShape.layers * kShape.width * kShape.width;
  const bool muon = std::holds_alternative<config::MuonConfig>(run.optimizer);
  return config::CountModelStateBytes({.trainable = trainable,
                                       .frozen = frozen,
                                       .muon = muon ? matrices : 0,
                                       .shard_ranks = world_size,
                                       .sharding = config::ShardingOfStage(run.stage, world_size),
                                       .types = config::ChooseStateTypes(TinyConfig(run))});
}

// Forward and backward, stopping before the update: all of the model state is there.
void RunBackward(Engine& engine, const TinyRun& run) {
  const at::Tensor loss = engine.forward(TinyBatch(run, engine.world(), 0));
  engine.backward(loss);
}

TEST_P(ZeroMemory, LedgerAndAllocatorAgreeWithTheFormula) {
  const auto& [stage, world_size, precision] = GetParam();
  const TinyRun run{.stage = stage, .precision = precision, .shape = kShape};
  const config::ModelStateBytes expected = Expected(run, world_size);
  const std::int64_t before = allocator_->BytesOut();
  std::vector<MemoryLedger> ledgers(static_cast<std::size_t>(world_size));
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    MemoryLedger& ledger = ledgers[static_cast<std::size_t>(world.rank())];
    const auto engine = MakeTinyEngine(run, world, &ledger);
    RunBackward(*engine, run);
    const auto bytes = [&](MemoryUse use) { return ledger.Bytes(use, MemoryTier::kHost); };
    ExpectWithin2Percent(bytes(MemoryUse::kParameters), expected.parameters, "parameters");
    ExpectWithin2Percent(bytes(MemoryUse::kGradients), expected.gradients, "gradients");
    ExpectWithin2Percent(bytes(MemoryUse::kOptimizerState), expected.optimizer_state, "moments");
    ExpectWithin2Percent(bytes(MemoryUse::kMasterWeights), expected.master_weights, "master");
    world.Barrier();
    if (world.rank() == 0) {
      std::int64_t buffers = 0;
      for (const MemoryLedger& each : ledgers) {
        buffers += each.Bytes(MemoryUse::kCommBuffers, MemoryTier::kHost);
      }
      ExpectWithin2Percent(allocator_->BytesOut() - before - buffers,
                           world.size() * expected.total(), "allocated by all ranks");
    }
    world.Barrier();
    EXPECT_TRUE(engine->step().value().boundary);
    EXPECT_EQ(bytes(MemoryUse::kGradients), 0) << "given back between steps";
  });
  EXPECT_EQ(ledgers[0].ModelStateBytes(), 0) << "all of it ends with the engine";
}

INSTANTIATE_TEST_SUITE_P(Stages, ZeroMemory,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3),
                                            ::testing::Values(1, 2, 4),
                                            ::testing::Values(Precision::kFp32, Precision::kBf16,
                                                              Precision::kBf16Masters,
                                                              Precision::kBf16Throughout)));

TEST_F(ZeroMemory, MuonsStateIsAsTheFormulaSaysAndItsBuffersAreBooked) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    const TinyRun run{.stage = stage, .optimizer = config::MuonConfig{}, .shape = kShape};
    std::vector<MemoryLedger> ledgers(2);
    testing::RunRanks(2, [&](comm::Communicator& world) {
      MemoryLedger& ledger = ledgers[static_cast<std::size_t>(world.rank())];
      const auto engine = MakeTinyEngine(run, world, &ledger);
      ExpectWithin2Percent(ledger.Bytes(MemoryUse::kOptimizerState, MemoryTier::kHost),
                           Expected(run, 2).optimizer_state, "momenta and moments");
      RunBackward(*engine, run);
      world.Barrier();
      if (world.rank() == 0) allocator_->ResetPeak();
      const std::int64_t before = allocator_->BytesOut();
      world.Barrier();
      EXPECT_TRUE(engine->step().value().boundary);
      world.Barrier();
      EXPECT_EQ(ledger.Bytes(MemoryUse::kOther, MemoryTier::kHost), 0);
      if (world.rank() != 0) return;
      std::int64_t booked = 0;
      for (const MemoryLedger& each : ledgers) {
        booked += each.Peak(MemoryUse::kOther, MemoryTier::kHost);
      }
      const auto taken = static_cast<double>(allocator_->PeakBytesOut() - before);
      EXPECT_LE(taken, 1.02 * static_cast<double>(booked));
      EXPECT_GE(taken, 0.3 * static_cast<double>(booked));
    });
  }
}

// Stage 3 holds at most two blocks beside the shards while it builds and while it trains: here the
// embedding with the tied head, the largest pair.
TEST_F(ZeroMemory, StageThreeNeverHoldsTheFullModel) {
  const TinyRun run{.stage = 3, .shape = kShape};
  const std::int64_t embedding = 4 * kShape.vocabulary * kShape.width;
  const std::int64_t layer = 4 * (kShape.width * kShape.width + 4 * kShape.width);
  testing::RunRanks(4, [&](comm::Communicator& world) {
    MemoryLedger ledger;
    const auto engine = MakeTinyEngine(run, world, &ledger);
    const auto peak = [&] { return ledger.Peak(MemoryUse::kCommBuffers, MemoryTier::kHost); };
    EXPECT_LE(peak(), embedding + layer) << "one unit at a time";
    TrainTiny(*engine, run, 2);
    // At the end of the backward pass: the embedding, its gradient, and layers' buffers kept.
    EXPECT_LE(peak(), 2 * embedding + 2 * layer);
  });
}

Bundle TokenBatch(std::int64_t samples, std::int64_t length) {
  const at::Tensor tokens = at::arange(samples * length, at::kLong).view({samples, length});
  return {.batch = {{"tokens", tokens.remainder(50)}, {"labels", (tokens * 3).remainder(50)}}};
}

std::unique_ptr<Engine> MakeLanguageModel(const char* config, comm::Communicator& world,
                                          const config::RecomputeChoice& recompute = {}) {
  auto model =
      models::BuildModel(models::ParseModelConfig(config, "config.json").value(), at::kFloat);
  model->train(true);
  return Engine::create(model, TinyConfig({}), {.world = &world, .recompute = recompute}).value();
}

// The head's gradient is there since the forward pass. The embedding's rows are added where that
// goes; a table of zeros for them, and another for the sum, are not made.
TEST_F(ZeroMemory, ATiedTablesGradientIsAllocatedOnceNextToItsBucket) {
  constexpr char kModel[] =
      R"({"model_type": "gpt2", "vocab_size": 20000, "n_positions": 8, "n_embd": 32, "n_layer": 1,
          "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
  constexpr std::int64_t kTable = 20000 * 32 * 4;
  testing::RunRanks(1, [&](comm::Communicator& world) {
    const auto engine = MakeLanguageModel(kModel, world);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = engine->forward(TokenBatch(2, 8));
      const std::int64_t before = allocator_->BytesOut();
      allocator_->ResetPeak();
      engine->backward(loss);
      EXPECT_LE(allocator_->PeakBytesOut() - before, kTable + kTable / 5) << step;
      EXPECT_TRUE(engine->step().ok());
    }
  });
}

// What attention keeps grows with the tokens and not with their square, with dropout, too.
TEST_F(ZeroMemory, AttentionKeepsNoWeights) {
  constexpr std::int64_t kSamples = 2, kHeads = 4, kLength = 64;
  constexpr std::int64_t kWeights = kSamples * kHeads * kLength * kLength * 4;
  const auto measure = [&](const std::string& model) {
    std::int64_t kept = 0;
    testing::RunRanks(1, [&](comm::Communicator& world) {
      const auto engine = MakeLanguageModel(model.c_str(), world);
      const std::int64_t before = allocator_->BytesOut();
      const at::Tensor loss = engine->forward(TokenBatch(kSamples, kLength));
      kept = allocator_->BytesOut() - before;
      engine->backward(loss);
    });
    return kept;
  };
  const std::string gpt2 =
      R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 64, "n_embd": 16, "n_layer": 3,
          "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": )";
  EXPECT_LT(measure(gpt2 + "0.1}") - measure(gpt2 + "0.0}"), kWeights / 8);
  const std::string llama =
      R"({"model_type": "llama", "vocab_size": 50, "max_position_embeddings": 64,
          "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
          "num_attention_heads": 4, "num_key_value_heads": 2, "attention_dropout": )";
  EXPECT_LT(measure(llama + "0.1}") - measure(llama + "0.0}"), kWeights / 8);
}

}  // namespace
}  // namespace ds::tests
