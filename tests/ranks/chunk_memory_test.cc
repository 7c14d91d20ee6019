// What chunked attention keeps of a sample, on the device or in files, is what plan/memory
// says.

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/device/activation_meter.h"
#include "runtime/device/counting_allocator.h"
#include "runtime/device/dtype_policy.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/plan/memory/job_memory.h"
#include "runtime/plan/memory/product_scratch.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using nlohmann::ordered_json;

ordered_json LongLlama() {
  return {{"model_type", "llama"},       {"vocab_size", 64},
          {"hidden_size", 64},           {"intermediate_size", 128},
          {"num_hidden_layers", 12},     {"num_attention_heads", 8},
          {"num_key_value_heads", 2},    {"max_position_embeddings", 8192},
          {"tie_word_embeddings", false}};
}

struct LongCase {
  ordered_json model = LongLlama();
  std::int64_t seq_len = 1024, sp_chunk = 128, mlp_tiles = 4;
  std::string sp_offload = {};
  Precision precision = Precision::kFp32;
  config::RecomputeChoice recompute = {};
};

models::ModelConfig Describe(const LongCase& test) {
  return models::ParseModelConfig(test.model.dump(), "config.json").value();
}

config::DsConfig ConfigOf(const LongCase& test) {
  config::DsConfig config = TinyConfig({.precision = test.precision});
  config.batch.train_micro_batch_size_per_gpu = 1;
  return config;
}

std::int64_t Plan(const LongCase& test) {
  const engine::JobShape job{.model = Describe(test).decoder,
                             .seq_len = test.seq_len,
                             .recompute = test.recompute,
                             .mlp_tiles = test.mlp_tiles,
                             .sp_chunk = test.sp_chunk,
                             .sp_offload = test.sp_offload};
  return engine::PlanJobMemory(ConfigOf(test), job).peak_activations;
}

class ChunkMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);  // each has a scratchpad of its own
    if (device::CountingAllocator::Find() == nullptr) device::CountingAllocator::Install();
  }

  // The most that activations take, in the forward pass and the backward pass of one micro-batch.
  static std::int64_t Measure(const LongCase& test) {
    std::int64_t peak = 0;
    testing::RunRanks(1, [&](comm::Communicator& world) {
      device::MemoryLedger ledger;
      device::ActivationMeter meter(ledger, c10::kCPU);
      const config::DsConfig config = ConfigOf(test);
      models::ModelRanks ranks;
      ranks.sequence.SetChunk(test.sp_chunk);
      auto model = models::BuildModel(Describe(test),
                                      precision::ToScalarType(config.training_dtype()), ranks);
      model->train(true);
      const auto engine = Engine::create(model, config,
                                         {.world = &world,
                                          .ledger = &ledger,
                                          .recompute = test.recompute,
                                          .mlp_tiles = test.mlp_tiles,
                                          .sp_offload = test.sp_offload})
                              .value();
      const auto before = meter.Mark().activations.bytes;
      const at::Tensor ids = at::arange(test.seq_len, at::kLong).view({1, test.seq_len});
      const at::Tensor loss = engine->forward(
          {.batch = {{"tokens", ids.remainder(63)}, {"labels", (ids * 3).remainder(63)}}});
      const auto forward = meter.Mark().activations;
      engine->backward(loss);
      const auto backward = meter.Mark().activations;
      peak = std::max(forward.peak, backward.peak) - before;
    });
    return peak;
  }

  static void ExpectPlanned(const LongCase& test) {
    const auto expected = static_cast<double>(Plan(test));
    EXPECT_NEAR(static_cast<double>(Measure(test)), expected, 0.05 * expected);
  }

  // What of that is attention's: all but what each layer keeps beside it, whatever attention takes
  // at once. That is what goes into the layer, the sum behind attention and its norm, of so many
  // values of a token each, and the two norms' numbers.
  static std::int64_t MeasureAttention(const LongCase& test) {
    const auto layers = test.model["num_hidden_layers"].get<std::int64_t>();
    const auto width = test.model["hidden_size"].get<std::int64_t>();
    constexpr std::int64_t kFloatBytes = 4;
    return Measure(test) - layers * test.seq_len * (3 * width + 2) * kFloatBytes;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ChunkMemory, IsPlanned) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const std::string& where : {std::string(), folder_.path().string()}) {
      SCOPED_TRACE(where.empty() ? "on the device" : "in files");
      ExpectPlanned({.sp_offload = where, .precision = precision});
      ExpectPlanned({.sp_chunk = 300, .sp_offload = where, .precision = precision});
    }
  }
}

// The most is then one layer's, held between two products: the plan has a product's scratch on top
// of it, which such a small model sees.
TEST_F(ChunkMemory, OfLayersThatAreComputedAgainIsPlanned) {
  using Kind = config::RecomputeChoice::Kind;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const std::string& where : {std::string(), folder_.path().string()}) {
      SCOPED_TRACE(where.empty() ? "on the device" : "in files");
      const LongCase test{
          .sp_offload = where, .precision = precision, .recompute = {.kind = Kind::kBlocks}};
      const std::int64_t planned = Plan(test), measured = Measure(test);
      EXPECT_LE(measured, planned);
      EXPECT_GE(static_cast<double>(measured),
                0.97 * static_cast<double>(planned - models::kProductScratch));
    }
  }
  ExpectPlanned({.recompute = {.kind = Kind::kAttention}});
}

// Whole samples take in proportion to their length what attention makes and keeps in each layer;
// portions, in files, what one layer has on the way.
TEST_F(ChunkMemory, OfSamplesFourTimesAsLongDoesNotExceedFullAttention) {
  const std::int64_t full = MeasureAttention({.seq_len = 256, .sp_chunk = 256});
  EXPECT_GT(MeasureAttention({.seq_len = 1024, .sp_chunk = 1024}), 3 * full);
  EXPECT_LE(
      MeasureAttention({.seq_len = 1024, .sp_chunk = 128, .sp_offload = folder_.path().string()}),
      full);
}

}  // namespace
}  // namespace ds::tests
