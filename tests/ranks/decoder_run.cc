#include "tests/ranks/decoder_run.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/isa_probe.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/loop/evaluate.h"
#include "runtime/engine/make_mesh.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/layers/lora.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr std::int64_t kSamplesOfAStep = 8;
constexpr std::int64_t kTokensOfASample = 12;

std::int64_t SamplesOfAMicroBatch(const DecoderRun& run, int readers) {
  return kSamplesOfAStep / (readers * run.accumulation);
}

config::DsConfig ConfigOf(const DecoderRun& run, int readers) {
  config::DsConfig config;
  config.batch = {.train_batch_size = kSamplesOfAStep,
                  .train_micro_batch_size_per_gpu = SamplesOfAMicroBatch(run, readers),
                  .gradient_accumulation_steps = run.accumulation};
  config.optimizer = {
      .lr = 0.01, .weight_decay = 0.1, .algorithm = run.optimizer, .base_shapes = run.base_shapes};
  config.zero_optimization.stage = run.stage;
  if (run.offloads_optimizer) {
    config.zero_optimization.offload_optimizer.device = config::OffloadDevice::kCpu;
  }
  const auto to_files = [](const std::string& folder, auto* offload) {
    if (folder.empty()) return;
    offload->device = config::OffloadDevice::kNvme;
    offload->nvme_path = {folder};
  };
  to_files(run.optimizer_folder, &config.zero_optimization.offload_optimizer);
  to_files(run.parameter_folder, &config.zero_optimization.offload_param);
  if (!run.parameter_folder.empty()) config.zero_optimization.offload_param.max_in_cpu = 0;
  config.zero_optimization.sub_group_size = run.sub_group_size;
  config.aio.block_size = 4096;    // what is smaller stays in memory
  config.gradient_clipping = 0.5;  // below the models' norms: it clips
  config.parallel.tensor = run.tensor;
  config.parallel.sequence = run.sequence;
  config.parallel.pipeline = run.pipeline;
  config.parallel.expert = run.expert;
  config.parallel.data_before_expert = run.data_before_expert;
  config.pipeline.partition = run.partition;
  config.pipeline.pipe_partitioned = run.sends_parts;
  config.pipeline.grad_partitioned = run.sends_parts;
  config.zero_optimization.ignore_unused_parameters = !run.names_unused;
  if (run.gathers_ahead) {
    config.zero_optimization.prefetch_bucket_size = 100'000;
    config.zero_optimization.max_live_parameters = 200'000;
  }
  if (run.most_in_window) {
    config.zero_optimization.max_live_parameters = run.most_in_window;
    config.zero_optimization.reduce_bucket_size = run.most_in_window;
  }
  config.zero_optimization.quantized_frozen_weights = run.quantizes_frozen;
  config.zero_optimization.hpz_partition_size = run.hpz_partition_size;
  config.activation_checkpointing.partition_activations = run.partitions_activations;
  config.activation_checkpointing.buffered_parts = run.buffered_parts;
  config.bf16.enabled = run.bf16;
  config.fp16 = run.fp16;
  return config;
}

// What reader `reader` of `readers` takes of a step: the same samples however they are shared out.
// Every fifth label is ignored.
Bundle BatchOf(const DecoderRun& run, std::int64_t micro_batch, topology::Member reader,
               std::int64_t vocabulary) {
  const std::int64_t samples = SamplesOfAMicroBatch(run, reader.count);
  const std::int64_t count = samples * kTokensOfASample;
  const std::int64_t first = (micro_batch * reader.count + reader.index) * count;
  const at::Tensor positions = at::arange(first, first + count, at::kLong);
  const at::Tensor tokens = (positions * positions * 7 + positions * 3).remainder(vocabulary);
  const at::Tensor labels =
      (tokens * 5 + 1).remainder(vocabulary).masked_fill(positions.remainder(5).eq(2), -100);
  const auto shaped = [&](const at::Tensor& ids) { return ids.view({samples, kTokensOfASample}); };
  Bundle bundle{.batch = {{"tokens", shaped(tokens)}, {"labels", shaped(labels)}}};
  if (run.packed) {
    const at::Tensor of_sample = shaped(positions.remainder(kTokensOfASample));
    bundle.batch["documents"] = of_sample.ge(4).to(at::kLong) + of_sample.ge(9).to(at::kLong);
  }
  return bundle;
}

topology::Mesh MeshOf(const DecoderRun& run, int ranks) {
  return engine::MakeMesh({}, ConfigOf(run, ranks / run.ranks_of_a_sample()), ranks).value();
}

engine::BatchSource ReadFrom(std::int64_t micro_batch, const Engine& engine,
                             const DecoderRun& run) {
  const topology::Mesh mesh = MeshOf(run, engine.world().size());
  const topology::Member reader = mesh.MemberOf(engine.world().rank(), topology::kDataAxes);
  const std::int64_t vocabulary =
      models::ParseModelConfig(run.model, "config.json").value().decoder.vocabulary;
  return
      [=]() mutable -> StatusOr<Bundle> { return BatchOf(run, micro_batch++, reader, vocabulary); };
}

}  // namespace

std::unique_ptr<Engine> MakeDecoderEngine(const DecoderRun& run, comm::Communicator& world,
                                          device::MemoryLedger* ledger) {
  // Before the process's first bf16 product.
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  const topology::Mesh mesh = MeshOf(run, world.size());
  auto described = models::ParseModelConfig(run.model, "config.json").value();
  if (run.residual) models::AddResidualMlp(&described.decoder);
  const auto dtype = run.bf16 ? at::kBFloat16 : run.fp16.enabled ? at::kHalf : at::kFloat;
  const config::DsConfig config = ConfigOf(run, world.size() / run.ranks_of_a_sample());
  const auto part = engine::FindStageBlocks(mesh, world.rank(), described.decoder, config,
                                            {run.schedule, run.chunks})
                        .value();
  const models::ModelRanks model_ranks =
      engine::FindModelRanks(mesh, world, run.sequence_kind, run.tensor_sums_overlap, run.sp_chunk);
  auto model = models::BuildModel(described, at::TensorOptions(dtype), model_ranks, part);
  model->train(true);
  if (run.lora_rank > 0) {
    models::LoraSpec lora{.rank = run.lora_rank, .dropout = run.lora_dropout};
    const models::ModelRanks ranks = engine::FindModelRanks(mesh, world);
    const auto full = models::BuildModel(described, at::TensorOptions(dtype), ranks);
    DS_CHECK(models::AddLora(*full, &lora, ranks.tensor).ok());
    DS_CHECK(models::AddLora(*model, &lora, ranks.tensor, models::ModelScope::kStage).ok());
  }
  if (!run.freeze.empty()) DS_CHECK(models::FreezeParameters(*model, run.freeze).ok());
  return Engine::create(std::move(model), config,
                        {.world = &world,
                         .ledger = ledger,
                         .recompute = run.recompute,
                         .schedule = run.schedule,
                         .mlp_tiles = run.mlp_tiles,
                         .sp_offload = run.sp_offload})
      .value();
}

std::vector<StepResult> TrainDecoder(Engine& engine, const DecoderRun& run, std::int64_t steps) {
  std::vector<StepResult> results;
  while (engine.finished_steps() < steps) {
    const auto next = ReadFrom(engine.finished_steps() * run.accumulation, engine, run);
    results.push_back(engine::TrainStep(engine, next).value());
  }
  return results;
}

void ExpectSameSteps(const std::vector<StepResult>& expected, const std::vector<StepResult>& ours,
                     const StepTolerance& tolerance) {
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(ours[i].loss, expected[i].loss, tolerance.loss) << i;
    EXPECT_NEAR(ours[i].grad_norm, expected[i].grad_norm,
                tolerance.norm * std::max(1.0, expected[i].grad_norm))
        << i;
    EXPECT_EQ(ours[i].tokens, expected[i].tokens);
    EXPECT_EQ(ours[i].samples, expected[i].samples);
  }
}

void ExpectSameParameters(const DecoderOutcome& expected, const DecoderOutcome& ours) {
  ASSERT_EQ(ours.parameters.size(), expected.parameters.size());
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(ours.parameters.at(name).allclose(value, 1e-4, 1e-5)) << name;
  }
}

void ExpectSameBits(const DecoderOutcome& expected, const DecoderOutcome& ours) {
  ASSERT_EQ(ours.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < ours.steps.size(); ++i) {
    EXPECT_EQ(ours.steps[i].loss, expected.steps[i].loss) << i;
    EXPECT_EQ(ours.steps[i].grad_norm, expected.steps[i].grad_norm) << i;
  }
  ASSERT_EQ(ours.parameters.size(), expected.parameters.size());
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(ours.parameters.at(name).equal(value)) << name;
  }
}

engine::Evaluation EvaluateDecoder(const DecoderRun& run, int ranks) {
  engine::Evaluation evaluation;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto engine = MakeDecoderEngine(run, world);
    const auto found =
        engine::Evaluate(*engine, ReadFrom(0, *engine, run), run.accumulation).value();
    if (world.rank() == 0) evaluation = found;
  });
  return evaluation;
}

DecoderOutcome RunDecoder(const DecoderRun& run, int ranks, std::int64_t steps) {
  DecoderOutcome outcome;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto engine = MakeDecoderEngine(run, world);
    auto results = TrainDecoder(*engine, run, steps);
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {std::move(results), std::move(parameters)};
  });
  return outcome;
}

std::vector<StepResult> GoOnFromCheckpoint(const DecoderRun& first, int ranks_of_first,
                                           const DecoderRun& second, int ranks_of_second) {
  const testing::TemporaryFolder folder;
  testing::RunRanks(ranks_of_first, [&](comm::Communicator& world) {
    const auto engine = MakeDecoderEngine(first, world);
    TrainDecoder(*engine, first, 2);
    checkpoint::Stateful* const parts[] = {&engine->state()};
    const auto saved = checkpoint::SaveCheckpoint({.root = folder.path(), .step = 2}, parts, world);
    EXPECT_TRUE(saved.ok()) << saved.status().message();
  });
  std::vector<StepResult> results;
  testing::RunRanks(ranks_of_second, [&](comm::Communicator& world) {
    const auto engine = MakeDecoderEngine(second, world);
    checkpoint::Stateful* const parts[] = {&engine->state()};
    const Status loaded = checkpoint::LoadCheckpoint(folder.path() / "step-2", parts, world);
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    auto steps = TrainDecoder(*engine, second, 4);
    if (world.rank() == 0) results = std::move(steps);
  });
  return results;
}

}  // namespace ds::tests
