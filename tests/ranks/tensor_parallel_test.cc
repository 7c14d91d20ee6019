// Decoders cut along the tensor axis train to what one rank trains: every ZeRO stage, with data
// parallelism beside it, and whatever else changes how a step runs. Sums have another order than
// one rank's, so numbers are compared, not bits.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/files.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lora.h"
#include "runtime/models/weights/derived_values.h"
#include "tests/ranks/decoder_run.h"
#include "tests/ranks/device_world.h"
#include "tests/ranks/latent_decoder.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

// A fused weight of queries, keys and values stored [in, out], biases everywhere, a tied head, a
// vocabulary that two does not divide.
constexpr char kGpt2[] = R"({"model_type":"gpt2","vocab_size":47,"n_positions":16,"n_embd":24,
    "n_layer":2,"n_head":4,"embd_pdrop":0.0,"resid_pdrop":0.0,"attn_pdrop":0.0})";
constexpr char kUnevenLlama[] = R"({"model_type":"llama","vocab_size":37,"hidden_size":24,
    "intermediate_size":35,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":3,
    "max_position_embeddings":16})";
// Norms of queries and keys, whose weights all heads share.
constexpr char kQwen3[] = R"({"model_type":"qwen3","vocab_size":48,"hidden_size":24,"head_dim":6,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":16})";
// Fused weights of unequal parts, and of gate and up.
constexpr char kPhi3[] = R"({"model_type":"phi3","vocab_size":48,"hidden_size":24,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":16,"pad_token_id":null})";
// Distances that differ by head, and weights fused by head.
constexpr char kBloom[] = R"({"model_type":"bloom","vocab_size":47,"hidden_size":24,"n_layer":2,
    "n_head":4,"hidden_dropout":0.0,"attention_dropout":0.0})";
constexpr char kBloomOfSixHeads[] = R"({"model_type":"bloom","vocab_size":47,"hidden_size":24,
    "n_layer":2,"n_head":6,"hidden_dropout":0.0,"attention_dropout":0.0})";
// Capped scores and logits, norms around, a norm whose weight is one plus what is trained.
constexpr char kGemma2[] = R"({"model_type":"gemma2","vocab_size":48,"hidden_size":24,"head_dim":6,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":16,"query_pre_attn_scalar":6})";
// Attention and MLP side by side.
constexpr char kNeox[] = R"({"model_type":"gpt_neox","vocab_size":47,"hidden_size":32,
    "intermediate_size":42,"num_hidden_layers":2,"num_attention_heads":4,
    "max_position_embeddings":16})";
constexpr char kFalcon[] = R"({"model_type":"falcon","vocab_size":48,"hidden_size":32,
    "num_hidden_layers":2,"num_attention_heads":4,"num_kv_heads":2,
    "new_decoder_architecture":true,"max_position_embeddings":16})";
constexpr char kUnevenDropout[] = R"({"model_type":"llama","vocab_size":37,"hidden_size":24,
    "intermediate_size":35,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":3,
    "max_position_embeddings":16,"attention_dropout":0.1})";
// A row that is not trained, in the second part.
constexpr char kOpt[] = R"({"model_type":"opt","vocab_size":48,"hidden_size":24,"ffn_dim":42,
    "num_hidden_layers":2,"max_position_embeddings":16,"num_attention_heads":4,"pad_token_id":30,
    "word_embed_proj_dim":24,"dropout":0.0,"attention_dropout":0.0})";

// In bf16 products and sums round on the way, and Adam's first updates are the signs of gradients.
// A is whole where the outputs are cut, B where the inputs are; fused weights and copied heads,
// too.
TEST(TensorParallel, AdaptersTrainAsOnOneRank) {
  for (const char* model : {kGpt2, kUnevenLlama, kPhi3, kBloom}) {
    for (const int stage : {0, 3}) {
      SCOPED_TRACE(fmt::format("{}, stage {}", model, stage));
      DecoderRun run{.model = model, .stage = stage, .lora_rank = 3};
      const DecoderOutcome alone = RunDecoder(run, 1, kTrainedSteps);
      run.tensor = 2;
      const DecoderOutcome split = RunDecoder(run, 4, kTrainedSteps);
      ExpectSameSteps(alone.steps, split.steps);
      for (const auto& [name, value] : alone.parameters) {
        EXPECT_TRUE(split.parameters.at(name).allclose(value, 1e-3, 1e-5)) << name;
      }
    }
  }
  // More ranks than heads of the keys: all of them have all keys.
  const DecoderRun four{.model = kQwen3, .tensor = 4, .stage = 2, .lora_rank = 3};
  DecoderRun one = four;
  one.tensor = 1;
  ExpectSameSteps(RunDecoder(one, 1, kTrainedSteps).steps,
                  RunDecoder(four, 4, kTrainedSteps).steps);
}

// DoRA's first magnitudes are read as of the whole weight, of which each rank takes its part.
TEST(TensorParallel, MagnitudesStartAsNormsOfTheFullWeight) {
  const at::Tensor full = at::arange(24 * 24, at::kFloat).view({24, 24});
  const auto read = [&](const std::string&, std::int64_t first, const at::Tensor& values) {
    values.copy_(full.flatten().narrow(0, first, values.numel()));
    return OkStatus();
  };
  testing::RunRanks(2, [&](comm::Communicator& world) {
    config::DsConfig config;
    config.parallel.tensor = 2;
    const topology::Mesh mesh = engine::MakeMesh({}, config, 2).value();
    const models::ModelRanks ranks = engine::FindModelRanks(mesh, world);
    const auto described = models::ParseModelConfig(kLlamaDecoder, "config.json").value();
    const auto model = models::BuildModel(described, at::TensorOptions(at::kFloat), ranks);
    models::LoraSpec lora{.rank = 2, .magnitudes = true, .targets = {"q_proj"}};
    ASSERT_TRUE(models::AddLora(*model, &lora, ranks.tensor).ok());
    models::DerivedValues derived(*model);
    const std::string name = "model.layers.1.self_attn.q_proj.lora_magnitude_vector";
    const std::int64_t first = 12 * world.rank();
    const at::Tensor own = at::zeros({12});
    ASSERT_TRUE(derived.Read(name, first, own, read).ok());
    EXPECT_TRUE(own.allclose(full.narrow(0, first, 12).norm(2, {1})));
  });
}

// The most likely token may be in any rank's part of the vocabulary.
TEST(TensorParallel, EvaluatesLikeOneRank) {
  for (const char* model : {kGpt2, kUnevenLlama}) {
    const auto alone = EvaluateDecoder({.model = model}, 1);
    const auto split = EvaluateDecoder({.model = model, .tensor = 2}, 2);
    EXPECT_NEAR(split.loss, alone.loss, 1e-5);
    EXPECT_EQ(split.labels, alone.labels);
    EXPECT_EQ(split.accuracy, alone.accuracy);
  }
}

TEST(TensorParallel, EveryStageMatchesOneRank) {
  const StepTolerance of_bf16{.loss = 2e-2, .norm = 0.08};
  for (const char* model : {kGpt2, kLlamaDecoder}) {
    for (const bool bf16 : {false, true}) {
      const DecoderOutcome alone = RunDecoder({.model = model, .bf16 = bf16}, 1, kTrainedSteps);
      for (int stage = 0; stage <= 3; ++stage) {
        for (const std::int64_t accumulation : {1, 2}) {
          SCOPED_TRACE(
              fmt::format("{} bf16 {} stage {} accumulation {}", model, bf16, stage, accumulation));
          const DecoderRun run{.model = model,
                               .tensor = 2,
                               .stage = stage,
                               .accumulation = accumulation,
                               .bf16 = bf16};
          ExpectSameSteps(alone.steps, RunDecoder(run, /*ranks=*/4, kTrainedSteps).steps,
                          bf16 ? of_bf16 : StepTolerance());
        }
      }
    }
  }
}

TEST(TensorParallel, ShardsEveryLayoutOfWeights) {
  const std::pair<const char*, int> splits[] = {{kQwen3, 2},         {kPhi3, 2},
                                                {kBloom, 2},         {kOpt, 2},
                                                {kLlamaDecoder, 4},  {kQwen3, 4},
                                                {kUnevenLlama, 2},   {kUnevenLlama, 6},
                                                {kUnevenDropout, 2}, {kBloomOfSixHeads, 4},
                                                {kGemma2, 2},        {kNeox, 2},
                                                {kFalcon, 2},        {kLatentDecoder, 2},
                                                {kLatentDecoder, 4}};
  for (const auto& [model, tensor] : splits) {
    SCOPED_TRACE(fmt::format("{} in {}", model, tensor));
    const DecoderOutcome alone = RunDecoder({.model = model}, 1, kTrainedSteps);
    const DecoderRun run{.model = model, .tensor = tensor, .stage = 3};
    ExpectSameSteps(alone.steps, RunDecoder(run, tensor, kTrainedSteps).steps);
  }
}

TEST(TensorParallel, RecomputationTilesAndOffloadChangeNothing) {
  const DecoderRun plain{.model = kLlamaDecoder, .tensor = 2, .stage = 2};
  const DecoderOutcome expected = RunDecoder(plain, 4, kTrainedSteps);
  using Kind = config::RecomputeChoice::Kind;
  std::vector<DecoderRun> runs(6, plain);
  runs[0].recompute = {.kind = Kind::kBlocks};
  runs[1].recompute = {.kind = Kind::kAttention};
  runs[2].mlp_tiles = 3;
  runs[3].offloads_optimizer = true;
  runs[4].recompute = {.kind = Kind::kBlocks};
  runs[4].partitions_activations = true;
  runs[5] = runs[4];
  runs[5].accumulation = plain.accumulation;
  runs[5].buffered_parts = 2;
  for (const DecoderRun& run : runs) {
    SCOPED_TRACE(&run - runs.data());
    ExpectSameSteps(expected.steps, RunDecoder(run, 4, kTrainedSteps).steps);
  }
}

TEST(TensorParallel, DropsTheSameAsOneRank) {
  const DecoderOutcome alone = RunDecoder({.model = kDroppingDecoder}, 1, kTrainedSteps);
  ExpectSameSteps(alone.steps,
                  RunDecoder({.model = kDroppingDecoder, .tensor = 2}, 4, kTrainedSteps).steps);
}

TEST(TensorParallel, InitialValuesAndExportsDoNotDependOnThePartition) {
  for (const char* model : {kGpt2, kLlamaDecoder, kPhi3, kOpt, kUnevenLlama}) {
    SCOPED_TRACE(model);
    const DecoderOutcome alone = RunDecoder({.model = model}, 1, /*steps=*/0);
    const DecoderOutcome split =
        RunDecoder({.model = model, .tensor = 2, .stage = 3}, 4, /*steps=*/0);
    ASSERT_EQ(split.parameters.size(), alone.parameters.size());
    for (const auto& [name, value] : alone.parameters) {
      EXPECT_TRUE(split.parameters.at(name).equal(value)) << name;
    }
  }
}

TEST(TensorParallel, TrainsTheWeightsThatOneRankTrains) {
  const DecoderRun run{.model = kGpt2, .optimizer = config::SgdConfig{.momentum = 0.9}};
  const DecoderOutcome alone = RunDecoder(run, 1, kTrainedSteps);
  DecoderRun split = run;
  split.tensor = 2;
  split.stage = 1;
  const DecoderOutcome ours = RunDecoder(split, 4, kTrainedSteps);
  for (const auto& [name, value] : alone.parameters) {
    EXPECT_TRUE(ours.parameters.at(name).allclose(value, 1e-5, 1e-6)) << name;
  }
}

// The file of base shapes of a model half as wide as `outcome`'s.
void WriteBaseShapes(const DecoderOutcome& outcome, const std::filesystem::path& path) {
  std::string text;
  for (const auto& [name, value] : outcome.parameters) {
    text += name + ":\n";
    for (const std::int64_t size : value.sizes()) text += fmt::format("- {}\n", size / 2);
  }
  ASSERT_TRUE(WriteFileAtomically(path, text).ok());
}

// Rates follow from the widths of whole matrices, not from a part's.
TEST(TensorParallel, RatesOfAWiderModelDoNotDependOnThePartition) {
  const testing::TemporaryFolder folder;
  DecoderRun run{.model = kGpt2, .optimizer = config::SgdConfig{.momentum = 0.9}};
  const DecoderOutcome plain = RunDecoder(run, 1, kTrainedSteps);
  run.base_shapes = (folder.path() / "base.bsh").string();
  WriteBaseShapes(plain, run.base_shapes);
  const DecoderOutcome alone = RunDecoder(run, 1, kTrainedSteps);
  EXPECT_NE(alone.steps.back().loss, plain.steps.back().loss);
  run.tensor = 2;
  run.stage = 1;
  const DecoderOutcome ours = RunDecoder(run, 4, kTrainedSteps);
  ExpectSameSteps(alone.steps, ours.steps);
  for (const auto& [name, value] : alone.parameters) {
    EXPECT_TRUE(ours.parameters.at(name).allclose(value, 1e-5, 1e-6)) << name;
  }
}

TEST(TensorParallel, CheckpointsMoveBetweenDegrees) {
  for (const char* model : {kGpt2, kLlamaDecoder, kPhi3}) {
    const DecoderRun alone{.model = model};
    const DecoderOutcome through = RunDecoder(alone, 1, 4);
    const DecoderRun halves{.model = model, .tensor = 2, .stage = 2};
    const DecoderRun halves_at_3{.model = model, .tensor = 2, .stage = 3};
    const std::tuple<DecoderRun, int, DecoderRun, int> moves[] = {
        {halves, 4, alone, 1}, {alone, 1, halves_at_3, 4}, {halves_at_3, 2, halves, 4}};
    for (const auto& [first, ranks_of_first, second, ranks_of_second] : moves) {
      SCOPED_TRACE(fmt::format("{} from {} to {} ranks", model, ranks_of_first, ranks_of_second));
      const auto steps = GoOnFromCheckpoint(first, ranks_of_first, second, ranks_of_second);
      ASSERT_EQ(steps.size(), 2U);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_NEAR(steps[i].loss, through.steps[i + 2].loss, 1e-5);
        EXPECT_NEAR(steps[i].grad_norm, through.steps[i + 2].grad_norm, 1e-4);
      }
    }
  }
}

// Activations and logits are what tensor ranks move on the device; all else takes control groups.
TEST(TensorParallel, SharesNumbersOverTheControlGroup) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(4, [&](comm::Communicator& host) {
      const auto world = MakeDeviceWorld(host);
      const DecoderRun run{
          .model = kLlamaDecoder, .tensor = 2, .stage = stage, .bf16 = stage % 2 == 1};
      const auto engine = MakeDecoderEngine(run, *world);
      EXPECT_EQ(TrainDecoder(*engine, run, 2).size(), 2U);
      EXPECT_EQ(ExportAll(*engine).empty(), host.rank() != 0);
    });
  }
}

TEST(TensorParallel, RefusesOptimizersOfFullTensors) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const DecoderRun run{.model = kLlamaDecoder, .tensor = 2};
    const auto engine = MakeDecoderEngine(run, world);
    EXPECT_THAT(TensorAccess(*engine).GetFullFp32Param("lm_head.weight").status().message(),
                HasSubstr("TensorAccess is not built with tensor parallelism"));
    // A model that does not know of the mesh's parts.
    config::DsConfig config;
    config.parallel.tensor = 2;
    const auto tiny =
        Engine::create(MakeTinyModel({}, at::TensorOptions()), config, {.world = &world});
    EXPECT_THAT(tiny.status().message(),
                HasSubstr("is neither sharded over the mesh's 2 tensor ranks"));
    config.optimizer.algorithm = config::MuonConfig{};
    EXPECT_THAT(Engine::create(MakeTinyModel({}, at::TensorOptions()), config, {.world = &world})
                    .status()
                    .message(),
                HasSubstr("an optimizer that needs full matrices is not built with tensor"));
    // A token that no part has.
    const at::Tensor outside = at::full({1, 4}, 48, at::kLong);
    EXPECT_THROW(engine->forward({.batch = {{"tokens", outside}, {"labels", outside}}}),
                 c10::IndexError);
  });
}

}  // namespace
}  // namespace ds::tests
