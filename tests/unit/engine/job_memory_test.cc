#include "runtime/plan/memory/job_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/file/check_config.h"
#include "tests/unit/engine/small_decoder.h"

namespace ds::engine {
namespace {

// No unit is much of the model: buffers are of whole units.
models::DecoderSpec MakeModel() { return MakeSmallDecoder(16); }

JobShape MakeJob(int ranks) {
  return {.model = MakeModel(), .seq_len = 64, .setting = {.ranks = ranks}};
}

config::DsConfig MakeConfig(int stage, std::int64_t micro_batch = 1) {
  config::DsConfig config;
  config.zero_optimization.stage = stage;
  config.batch.train_micro_batch_size_per_gpu = micro_batch;
  return config;
}

// No more than can come is planned for.
TEST(JobMemoryTest, AnExpertsLoadIsOfRanksThatHaveThemBetweenThem) {
  JobShape job = MakeJob(4);
  job.model.gated_mlp = true;
  job.model.activation = models::Activation::kSilu;
  job.model.experts = 8;
  job.model.experts_per_token = 2;
  config::DsConfig config = MakeConfig(2, 8);
  const auto peak = [&](double load) {
    job.expert_load = load;
    EXPECT_TRUE(CheckMemoryIsKnown(config, job).ok());
    return PlanJobMemory(config, job).peak.total();
  };
  EXPECT_EQ(peak(3.0), peak(1.0));
  config.parallel.expert = 2;
  EXPECT_GT(peak(1.5), peak(1.0));
  EXPECT_GT(peak(2.0), peak(1.5));
  EXPECT_EQ(peak(3.0), peak(2.0));
}

TEST(JobMemoryTest, HigherStagesHoldLess) {
  std::int64_t before = PlanJobMemory(MakeConfig(1), MakeJob(8)).peak.total();
  for (const int stage : {2, 3}) {
    const std::int64_t peak = PlanJobMemory(MakeConfig(stage), MakeJob(8)).peak.total();
    EXPECT_LT(peak, before) << stage;
    before = peak;
  }
}

// Their other values ask for what is always so (`check` says why), and the plan is the same.
TEST(JobMemoryTest, KeysThatAreAlwaysSoPlanNothingElse) {
  const auto plan = [](const std::string& keys, bool warns) {
    const config::CheckResult checked = config::CheckConfig(
        R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_shard_size": 2)" + keys +
            "}}",
        "ds.json", 4);
    EXPECT_TRUE(checked.ok);
    const auto is_warning = [](const config::Issue& warning) {
      return warning.message.find(" has no effect: ") != std::string::npos;
    };
    EXPECT_EQ(std::any_of(checked.warnings.begin(), checked.warnings.end(), is_warning), warns)
        << keys;
    return ToJson(PlanJobMemory(checked.config, MakeJob(4)));
  };
  const auto as_it_is = plan("", /*warns=*/false);
  for (const char* keys :
       {R"(, "contiguous_gradients": false)", R"(, "round_robin_gradients": true)",
        R"(, "memory_efficient_linear": false)", R"(, "mics_hierarchical_params_gather": true)",
        R"(, "leaf_module": {"classes": ["GPT2Block"]})", R"(, "leaf_module": {"names": ["h.0"]})",
        R"(, "leaf_module": {"name_suffixes": ["mlp"]})"}) {
    EXPECT_EQ(plan(keys, /*warns=*/true), as_it_is) << keys;
  }
}

TEST(JobMemoryTest, ActivationsGrowWithTheMicroBatch) {
  const zero::StepMemory one = PlanJobMemory(MakeConfig(2, 4), MakeJob(2));
  const zero::StepMemory two = PlanJobMemory(MakeConfig(2, 8), MakeJob(2));
  EXPECT_GT(two.peak_activations, one.peak_activations * 3 / 2);
  JobShape job = MakeJob(2);
  job.recompute = {.kind = config::RecomputeChoice::Kind::kBlocks};
  EXPECT_LT(PlanJobMemory(MakeConfig(2, 8), job).peak_activations, two.peak_activations);
}

zero::StepMemory PlanStageOf(JobShape job, std::optional<int> stage, std::int64_t micro_batches,
                             pipeline::ScheduleKind schedule) {
  config::DsConfig config = MakeConfig(1, 16);
  config.parallel.pipeline = 3;
  config.batch.gradient_accumulation_steps = micro_batches;
  job.stage = stage;
  job.schedule = schedule;
  EXPECT_TRUE(CheckMemoryIsKnown(config, job).ok());
  return PlanJobMemory(config, job);
}

TEST(JobMemoryTest, StagesHoldTheMicroBatchesOnTheirWay) {
  using pipeline::ScheduleKind;
  constexpr auto k1F1B = ScheduleKind::kOneForwardOneBackward;
  const auto activations = [](int stage, std::int64_t micro_batches, ScheduleKind schedule) {
    return static_cast<double>(
        PlanStageOf(MakeJob(6), stage, micro_batches, schedule).peak_activations);
  };
  const double one = activations(1, 1, k1F1B);
  EXPECT_NEAR(activations(1, 2, k1F1B), 2 * one, 0.1 * one);
  EXPECT_NEAR(activations(1, 3, k1F1B), 2 * one, 0.1 * one) << "of three stages";
  EXPECT_EQ(activations(1, 1'000'000'000, k1F1B), activations(1, 3, k1F1B));
  // What one of them makes on its way comes once.
  EXPECT_NEAR(activations(1, 5, ScheduleKind::kGPipe), 5 * one, 0.3 * one);
  EXPECT_GT(activations(1, 5, ScheduleKind::kGPipe), 2 * activations(1, 5, k1F1B));
}

TEST(JobMemoryTest, OfStagesThatHoldingTheMostIsPlanned) {
  constexpr auto k1F1B = pipeline::ScheduleKind::kOneForwardOneBackward;
  std::int64_t most = 0;
  for (int stage = 0; stage < 3; ++stage) {
    most = std::max(most, PlanStageOf(MakeJob(6), stage, 8, k1F1B).peak.total());
  }
  const zero::StepMemory planned = PlanStageOf(MakeJob(6), std::nullopt, 8, k1F1B);
  EXPECT_EQ(planned.peak.total(), most);
  EXPECT_EQ(planned.when, "the backward pass of layer 4 on stage 0");
}

// Budget: elements that may lie whole through a step.
zero::StepMemory PlanWindows(std::int64_t micro_batches, std::optional<std::int64_t> budget) {
  config::DsConfig config = MakeConfig(3, 2);
  config.parallel.pipeline = 3;
  config.batch.gradient_accumulation_steps = micro_batches;
  config.zero_optimization.max_live_parameters = budget;
  config.zero_optimization.reduce_bucket_size = budget;
  JobShape job = MakeJob(6);
  job.stage = 0;
  return PlanJobMemory(config, job);
}

TEST(JobMemoryTest, TensorRanksSendTheirPartsBetweenStages) {
  const auto between = [](int tensor, bool activations = true, bool gradients = true) {
    config::DsConfig config = MakeConfig(1);
    config.pipeline.pipe_partitioned = activations;
    config.pipeline.grad_partitioned = gradients;
    config.parallel.pipeline = 2;
    config.parallel.tensor = tensor;
    config.batch.gradient_accumulation_steps = 4;
    JobShape job = MakeJob(4);
    job.stage = 0;
    return PlanJobMemory(config, job).traffic.between_stages;
  };
  EXPECT_GT(between(1), 0);
  EXPECT_EQ(between(2), between(1) / 2);
  EXPECT_EQ(between(2, false, false), between(1));
  EXPECT_EQ(between(2, true, false), between(1) * 3 / 4);
  EXPECT_EQ(between(2, false, true), between(1) * 3 / 4);
}

TEST(JobMemoryTest, BytesOfStateDoNotDependOnMicroBatches) {
  const zero::StepMemory few = PlanWindows(4, std::nullopt);
  const zero::StepMemory many = PlanWindows(1'000'000, std::nullopt);
  EXPECT_TRUE(few.windows.parameters.full_step);
  EXPECT_GT(few.traffic.all_gather, 0);
  EXPECT_GT(few.traffic.reduce_scatter, 0);
  EXPECT_EQ(many.traffic.all_gather, few.traffic.all_gather);
  EXPECT_EQ(many.traffic.reduce_scatter, few.traffic.reduce_scatter);
  EXPECT_EQ(many.traffic.between_stages, 250'000 * few.traffic.between_stages);
  EXPECT_EQ(many.peak.total(), PlanWindows(40, std::nullopt).peak.total());
}

TEST(JobMemoryTest, WindowsOfAMicroBatchHoldLessAndSendMore) {
  const auto planned = [](std::int64_t micro_batches) { return PlanWindows(micro_batches, 1000); };
  const zero::StepMemory full = PlanWindows(40, std::nullopt);
  EXPECT_FALSE(planned(40).windows.gradients.full_step);
  EXPECT_LT(planned(40).peak.total(), full.peak.total());
  EXPECT_EQ(planned(40).traffic.reduce_scatter, 40 * full.traffic.reduce_scatter);
  // Those on their way at the step's begin and end differ from others.
  const auto gathered = [&](std::int64_t count) { return planned(count).traffic.all_gather; };
  EXPECT_GT(gathered(40), 40 * full.traffic.all_gather);
  EXPECT_EQ(gathered(40) - gathered(30), gathered(30) - gathered(20));
}

TEST(JobMemoryTest, GPipesMicroBatchesAreCountedUpToABound) {
  config::DsConfig config = MakeConfig(1);
  config.parallel.pipeline = 2;
  config.batch.gradient_accumulation_steps = 4096;
  JobShape job = MakeJob(2);
  job.schedule = pipeline::ScheduleKind::kGPipe;
  EXPECT_TRUE(CheckMemoryIsKnown(config, job).ok());
  config.batch.gradient_accumulation_steps = 4097;
  EXPECT_EQ(CheckMemoryIsKnown(config, job).message(),
            "the memory of 4097 micro-batches at once on a stage (gpipe) is not known");
}

TEST(JobMemoryTest, ExpertRanksHaveTheirPartOfTheExperts) {
  JobShape job = MakeJob(4);
  job.model.experts = 8;
  job.model.experts_per_token = 2;
  config::DsConfig config = MakeConfig(0);
  const std::int64_t all = PlanJobMemory(config, job).between_steps.parameters;
  config.parallel.expert = 4;
  ASSERT_TRUE(CheckMemoryIsKnown(config, job).ok());
  const std::int64_t part = PlanJobMemory(config, job).between_steps.parameters;
  job.model.experts = 2;
  config.parallel.expert = 1;
  const std::int64_t of_router = job.model.layers * 6 * job.model.width * 4;
  EXPECT_EQ(part, PlanJobMemory(config, job).between_steps.parameters + of_router);
  EXPECT_LT(part, all);
  config.parallel.expert = 4;
  EXPECT_FALSE(CheckMemoryIsKnown(config, job).ok()) << "four ranks cannot have two experts";
}

TEST(JobMemoryTest, SequenceRanksHaveTheirPartOfTheActivations) {
  config::DsConfig config = MakeConfig(1, 8);
  const double alone = static_cast<double>(PlanJobMemory(config, MakeJob(4)).peak_activations);
  config.parallel.sequence = 4;
  const double shared = static_cast<double>(PlanJobMemory(config, MakeJob(4)).peak_activations);
  EXPECT_NEAR(shared, alone / 4, 0.1 * alone);
  EXPECT_EQ(PlanJobMemory(config, MakeJob(4)).between_steps.optimizer_state,
            PlanJobMemory(MakeConfig(1), MakeJob(4)).between_steps.optimizer_state);
  JobShape ring = MakeJob(4);
  ring.sequence_kind = models::SequenceKind::kRing;
  const double passed = static_cast<double>(PlanJobMemory(config, ring).peak_activations);
  EXPECT_NEAR(passed, alone / 4, 0.1 * alone);
  JobShape uneven = MakeJob(4);
  uneven.seq_len = 63;
  EXPECT_FALSE(CheckMemoryIsKnown(config, uneven).ok());
}

TEST(JobMemoryTest, DocumentsInASampleArePlanned) {
  config::TrainJob job{.data = {"tokens.bin", "texts"}, .tokenizer = "model", .seq_len = 64};
  const auto peak_of = [](const config::TrainJob& job) {
    const auto shape = DescribeJob(job, MakeModel(), {.ranks = 2});
    EXPECT_TRUE(shape.ok());
    return PlanJobMemory(MakeConfig(2, 4), *shape).peak.total();
  };
  const std::int64_t packed = peak_of(job);
  job.packing = "none";
  constexpr std::int64_t kNumbers = 8 * 4 * 64;
  EXPECT_EQ(peak_of(job), packed - kNumbers);
  job.packing = "stream";
  job.data = {"tokens.bin"};
  EXPECT_EQ(peak_of(job), packed - kNumbers) << "token files have none";
  job = {.data = {"texts"}, .seq_len = 64};
  EXPECT_EQ(peak_of(job), packed - kNumbers) << "bytes have none";
}

zero::StepMemory PlanTrained(const models::TrainableParameters& part) {
  JobShape job = MakeJob(2);
  job.trained = part;
  EXPECT_TRUE(CheckMemoryIsKnown(MakeConfig(2, 4), job).ok());
  return PlanJobMemory(MakeConfig(2, 4), job);
}

TEST(JobMemoryTest, OfAFrozenModelTheAdaptersHaveState) {
  const zero::StepMemory full = PlanTrained({});
  const zero::StepMemory adapted = PlanTrained({.lora = models::LoraSpec{.rank = 4}});
  // A and B beside queries, keys, values and output and the two products of the MLP, in 16 layers.
  constexpr std::int64_t kAdapters = 16 * 4 * (4 * (128 + 128) + 2 * (128 + 512));
  EXPECT_NEAR(adapted.between_steps.parameters - full.between_steps.parameters, 4 * kAdapters,
              0.01 * 4 * kAdapters);
  EXPECT_NEAR(adapted.between_steps.optimizer_state, 2 * 4 * kAdapters / 2, 0.01 * 4 * kAdapters);
}

TEST(JobMemoryTest, FrozenLayersInFrontKeepNothing) {
  const std::int64_t full = PlanTrained({}).peak_activations;
  const zero::StepMemory head = PlanTrained({.freeze = {"*embed*", "model.layers.*"}});
  EXPECT_LT(head.peak_activations, full / 4);
  const zero::StepMemory biases = PlanTrained({.freeze = {"*.weight"}});
  EXPECT_LT(biases.peak_activations, full);
  EXPECT_GT(biases.peak_activations, full / 3);
}

TEST(JobMemoryTest, MissingParametersCannotBeFrozenOrAdapted) {
  JobShape job = MakeJob(2);
  job.trained = {.freeze = {"nothing"}};
  EXPECT_EQ(CheckMemoryIsKnown(MakeConfig(2), job).message(),
            "no parameter of the model matches nothing; their names are like "
            "model.layers.10.post_attention_layernorm.weight");
  job.trained = {.lora = models::LoraSpec{.targets = {"nobody"}}};
  EXPECT_EQ(CheckMemoryIsKnown(MakeConfig(2), job).message(),
            "no linear layer of the model's layers is called nobody (there are: down_proj, k_proj, "
            "o_proj, q_proj, up_proj, v_proj)");
  job.trained = {.freeze = {"*"}};
  EXPECT_FALSE(CheckMemoryIsKnown(MakeConfig(2), job).ok());
}

// A list need not come to max_difficulty, and says nothing behind a number that does.
TEST(JobMemoryTest, OfACurriculumThatIsAListTheLongestSampleThatComesIsPlanned) {
  const auto peak = [](std::int64_t seq_len, std::vector<std::int64_t> list) {
    JobShape job = MakeJob(2);
    job.seq_len = seq_len;
    if (!list.empty()) {
      std::vector<std::int64_t> ends(list.size() - 1);
      for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = static_cast<std::int64_t>(i) + 1;
      job.efficiency.curriculum = {.min_difficulty = 8,
                                   .max_difficulty = 48,
                                   .difficulty = std::move(list),
                                   .max_step = std::move(ends)};
    }
    return PlanJobMemory(MakeConfig(2, 8), job).peak.total();
  };
  EXPECT_EQ(peak(64, {8, 32, 16}), peak(32, {}));
  EXPECT_EQ(peak(64, {8, 48, 64}), peak(48, {}));
  EXPECT_EQ(peak(64, {8, 56}), peak(56, {}));
  EXPECT_LT(peak(32, {}), peak(48, {}));
}

TEST(JobMemoryTest, OfBatchesByTokensTheRowsThatHoldThemArePlanned) {
  const auto plan = [](std::int64_t micro_batch, std::optional<config::DynamicBatching> batching) {
    JobShape job = MakeJob(2);
    job.efficiency.dynamic_batching = std::move(batching);
    EXPECT_TRUE(CheckMemoryIsKnown(MakeConfig(2, micro_batch), job).ok());
    return PlanJobMemory(MakeConfig(2, micro_batch), job).peak.total();
  };
  EXPECT_EQ(plan(2, {{.max_tokens = 4 * 64}}), plan(8, {}));
  EXPECT_EQ(plan(2, {{.max_tokens = 4 * 64, .max_batch_size = 3}}), plan(6, {}));
  EXPECT_EQ(plan(2, {{.max_tokens = 1}}), plan(2, {}));
  JobShape endless = MakeJob(2);
  endless.efficiency.dynamic_batching = {{.max_tokens = std::numeric_limits<std::int64_t>::max()}};
  EXPECT_FALSE(CheckMemoryIsKnown(MakeConfig(2), endless).ok());
}

TEST(JobMemoryTest, DoesNotPredictUnverifiedFeatures) {
  const auto refusal = [](const config::DsConfig& config) {
    return std::string(CheckMemoryIsKnown(config, MakeJob(2)).message());
  };
  config::DsConfig config = MakeConfig(3);
  EXPECT_EQ(refusal(config), "");
  config.optimizer.algorithm = config::MuonConfig();
  EXPECT_EQ(refusal(config), "");
  config.optimizer.algorithm = config::ZeroOneAdamConfig();
  EXPECT_EQ(refusal(config), "the memory of 1-bit optimizers is not known");
  config = MakeConfig(0);
  config.torch_autocast.enabled = true;
  EXPECT_EQ(refusal(config), "the memory of torch_autocast is not known");
  config = MakeConfig(0);
  config.parallel.expert = 2;
  EXPECT_EQ(refusal(config),
            "the model has no experts that 2 ranks could have between them: leave --ep out");
}

}  // namespace
}  // namespace ds::engine
