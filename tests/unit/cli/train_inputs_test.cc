#include "cli/train/train_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/train/find_model.h"
#include "cli/train/train_program.h"
#include "runtime/config/sections/elasticity_section.h"
#include "tests/unit/cli/train_folder.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainInputsTest : public TrainFolderTest {
 protected:
  TrainInputsTest() {
    Write("share/configs/models/tiny.json", "{}");
    Write("model/config.json", "{}");
    fs::create_directories(folder_.path() / "empty");
    Write("empty_file", "");
  }
};

TEST_F(TrainInputsTest, UsesTheDemoWithANoticeByDefault) {
  const auto inputs = GatherTrainInputs({}, share_, 2);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->job.model, "gpt2-demo");
  EXPECT_THAT(inputs->job.data, ElementsAre(Path("share/demo_corpus.txt")));
  EXPECT_EQ(inputs->notices.at(0), "using the built-in model gpt2-demo, data " +
                                       ShortenPath(Path("share/demo_corpus.txt")) + ", config " +
                                       ShortenPath(Path("share/configs/default_ds_config.json")) +
                                       ", 100 steps");
  EXPECT_EQ(inputs->job.steps, 100);
  EXPECT_TRUE(inputs->demo);
  EXPECT_EQ(inputs->resolved_config["train_batch_size"], 4) << "2 ranks";
}

TEST_F(TrainInputsTest, TensorRanksSuitTheModel) {
  Write("model/config.json", R"({"model_type": "llama", "hidden_size": 24,
      "num_attention_heads": 6, "num_key_value_heads": 2})");
  TrainFlags flags{.model = Path("model")};
  flags.training.tp = 2;
  const auto inputs = GatherTrainInputs(flags, share_, 4);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->resolved_config["tensor_parallel"]["autotp_size"], 2);
  EXPECT_EQ(inputs->resolved_config["train_batch_size"], 4) << "of 2 ranks";
  flags.training.tp = 4;
  EXPECT_THAT(GatherTrainInputs(flags, share_, 4).status().message(),
              HasSubstr("cannot shard the model into 4 parts: it has 6 heads of the queries and 2 "
                        "heads of the keys; it can into 2 or 6"));
}

TEST_F(TrainInputsTest, DegreesSuitTheModel) {
  Write("model/config.json", R"({"model_type": "llama", "hidden_size": 24,
      "num_attention_heads": 6, "num_key_value_heads": 3, "num_hidden_layers": 4})");
  const std::string model = Path("model");
  EXPECT_EQ(CheckDegreesFit(model, {.pipeline = 4, .sequence = 2}, share_).message(), "");
  EXPECT_THAT(CheckDegreesFit(model, {.pipeline = 5}, share_).message(),
              HasSubstr("--model " + model + ": pipeline 5 asks for more stages than the model"));
  EXPECT_THAT(CheckDegreesFit(model, {.sequence = 4}, share_).message(),
              HasSubstr("4 sequence ranks cannot share 6 heads of the queries and 3 of the keys: "
                        "3 or 6 can"));
  EXPECT_TRUE(CheckDegreesFit(model, {.sequence = 4}, share_, models::SequenceKind::kRing).ok());
  TrainFlags flags{.model = model, .seq_len = 31};
  flags.training.sp = 2;
  EXPECT_THAT(GatherTrainInputs(flags, share_, 4).status().message(),
              HasSubstr("2 sequence ranks cannot share samples (--seq_len) of 31 tokens: take 30"));
  flags.seq_len = 32;
  const auto inputs = GatherTrainInputs(flags, share_, 4);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->resolved_config["sequence_parallel_size"], 2);
  EXPECT_EQ(inputs->resolved_config["train_batch_size"], 4) << "of 2 ranks";
}

TEST_F(TrainInputsTest, StagesSuitTheModel) {
  Write("model/config.json", R"({"model_type": "llama", "hidden_size": 24, "vocab_size": 32,
      "intermediate_size": 32, "num_attention_heads": 6, "num_hidden_layers": 4})");
  TrainFlags flags{.model = Path("model")};
  flags.training.pp = 2;
  flags.pp_schedule = "gpipe";
  flags.pp_virtual_stages = 1;
  const auto inputs = GatherTrainInputs(flags, share_, 4);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->config.parallel.pipeline, 2);
  EXPECT_EQ(inputs->job.pipeline_schedule, "gpipe");
  EXPECT_EQ(inputs->resolved_config["pipeline"]["stages"], 2);
  Write("conv.json", R"({"train_batch_size": 4, "pipeline": {"partition": "type:conv"}})");
  flags.deepspeed_config = Path("conv.json");
  EXPECT_THAT(GatherTrainInputs(flags, share_, 4).status().message(),
              HasSubstr("pipeline.partition: \"conv\" matches none of the model's blocks"));
  Write("megatron.json",
        R"({"train_batch_size": 4, "pipeline": {"partition": "type:transformer"}})");
  flags.deepspeed_config = Path("megatron.json");
  EXPECT_TRUE(GatherTrainInputs(flags, share_, 4).ok());
  flags.training.pp = 5;
  EXPECT_THAT(GatherTrainInputs(flags, share_, 5).status().message(),
              HasSubstr("pipeline 5 asks for more stages than the model has layers"));
  flags.training.pp.reset();
  flags.deepspeed_config.clear();
  EXPECT_THAT(
      GatherTrainInputs(flags, share_, 4).status().message(),
      HasSubstr("--pp_schedule needs pipeline stages: set --pp or the config's pipeline.stages"));
  // A run of stages may go on without them; the order that it has had counts for nothing then.
  const auto resumed = OverrideTrainInputs(inputs->job, {.training = {.pp = 1}}, share_, 1);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_EQ(resumed->config.parallel.pipeline, 1);
}

TEST_F(TrainInputsTest, AutoIsResolvedFromFlagsModelAndSteps) {
  Write("model/config.json", R"({"hidden_size": 16})");
  Write("auto.json", R"({"train_micro_batch_size_per_gpu": "auto",
      "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
      "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": "auto"}})");
  TrainFlags flags{.model = Path("model"), .deepspeed_config = Path("auto.json")};
  flags.training.learning_rate = 0.125;
  const auto inputs = GatherTrainInputs(flags, share_, 2);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->resolved_config["optimizer"]["params"]["lr"], 0.125);
  EXPECT_EQ(inputs->resolved_config["train_batch_size"], 16);
  EXPECT_EQ(inputs->job.ds_config,
            R"({"optimizer":{"type":"AdamW","params":{"lr":0.125}},"zero_optimization":{"stage":3,)"
            R"("stage3_param_persistence_threshold":160},"train_micro_batch_size_per_gpu":8})");
  // The run goes on with what "auto" stood for, where no flag says otherwise.
  const auto resumed = OverrideTrainInputs(inputs->job, {}, share_, 1);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_EQ(resumed->job.ds_config, inputs->job.ds_config);
  flags.training.learning_rate = 0.5;
  flags.deepspeed_config.clear();
  const auto other = OverrideTrainInputs(inputs->job, flags, share_, 1);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(other->resolved_config["optimizer"]["params"]["lr"], 0.5);
  EXPECT_EQ(other->resolved_config["zero_optimization"]["stage"], 3);
}

TEST_F(TrainInputsTest, GivenInputsAreUsedAndMadeAbsolute) {
  const auto inputs =
      GatherTrainInputs({.model = Path("empty/../model"),
                         .data = {Path("data.txt")},
                         .deepspeed_config = Path("share/configs/default_ds_config.json"),
                         .token_dtype = "uint32",
                         .seq_len = 8,
                         .steps = 9,
                         .seed = 1,
                         .no_shuffle = true,
                         .save_every = 3,
                         .save_hf = "out"},
                        share_, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->job.model, Path("model"));
  EXPECT_EQ(inputs->job.seq_len, 8);
  EXPECT_EQ(inputs->job.steps, 9);
  EXPECT_EQ(inputs->job.seed, 1u);
  EXPECT_EQ(inputs->job.save_every, 3);
  EXPECT_FALSE(inputs->job.shuffle);
  EXPECT_EQ(inputs->job.token_dtype, "uint32");
  EXPECT_TRUE(fs::path(inputs->job.save_hf_dir).is_absolute());
}

TEST_F(TrainInputsTest, LrScheduleReplacesTheConfigsSchedule) {
  Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "scheduler": {"type": "WarmupDecayLR",
                       "params": {"total_num_steps": 70}}})");
  TrainFlags flags{.deepspeed_config = Path("ds.json"), .steps = 9};
  flags.schedule = {.lr_schedule = "WarmupCosineLR", .given = {{"warmup_num_steps", 5}}};
  const auto cosine = GatherTrainInputs(flags, share_, 1);
  ASSERT_TRUE(cosine.ok()) << cosine.status().message();
  const auto value = [](const TrainInputs& inputs, const std::string& key) {
    return inputs.resolved_config["scheduler"][nlohmann::ordered_json::json_pointer("/" + key)];
  };
  EXPECT_EQ(value(*cosine, "type"), "WarmupCosineLR");
  EXPECT_EQ(value(*cosine, "params/warmup_num_steps"), 5);
  EXPECT_EQ(value(*cosine, "params/cos_min_ratio"), 0.01) << "the flag's default";
  EXPECT_EQ(value(*cosine, "params/total_num_steps"), 70) << "the config's";
  EXPECT_THAT(cosine->job.ds_config, HasSubstr("\"type\":\"WarmupCosineLR\""));

  flags.deepspeed_config.clear();
  const auto default_config = GatherTrainInputs(flags, share_, 1);
  ASSERT_TRUE(default_config.ok()) << default_config.status().message();
  EXPECT_EQ(value(*default_config, "params/total_num_steps"), 9) << "--steps";

  flags.schedule = {.lr_schedule = "OneCycle", .given = {{"cycle_second_step_size", -1}}};
  const auto cycle = GatherTrainInputs(flags, share_, 1);
  ASSERT_TRUE(cycle.ok()) << cycle.status().message();
  EXPECT_EQ(value(*cycle, "params/cycle_momentum"), true);
  EXPECT_EQ(value(*cycle, "params/cycle_first_step_size"), 1000);
}

TEST_F(TrainInputsTest, ARewindNeedsCheckpoints) {
  TrainFlags flags{.on_non_finite = "rewind"};
  EXPECT_THAT(Error(flags), HasSubstr("--on_non_finite rewind needs --save_every"));
  flags.save_every = 5;
  const auto inputs = GatherTrainInputs(flags, share_, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->job.on_non_finite, "rewind");
}

TEST_F(TrainInputsTest, PassesRecomputationToTheJob) {
  EXPECT_EQ(GatherTrainInputs({}, share_, 1)->job.recompute, "auto");
  EXPECT_EQ(GatherTrainInputs({.recompute = "every:2"}, share_, 1)->job.recompute, "every:2");
  EXPECT_EQ(GatherTrainInputs({}, share_, 1)->job.mlp_tiles, 1);
  EXPECT_EQ(GatherTrainInputs({.tile_mlp = 8}, share_, 1)->job.mlp_tiles, 8);
  EXPECT_EQ(GatherTrainInputs({.sp_chunk = 8}, share_, 1)->job.sp_chunk, 8);
  const TrainFlags on_host{.sp_chunk = 8, .sp_offload = "cpu"};
  EXPECT_EQ(GatherTrainInputs(on_host, share_, 1)->job.sp_offload, "cpu");
  const TrainFlags in_files{.sp_chunk = 8, .sp_offload = "away"};
  EXPECT_EQ(GatherTrainInputs(in_files, share_, 1)->job.sp_offload,
            std::filesystem::absolute("away").string());
  EXPECT_EQ(GatherTrainInputs({.sp_chunk = 8, .sp_offload = ""}, share_, 1)->job.sp_offload, "");
}

TEST_F(TrainInputsTest, RefusesChunksWithoutEffect) {
  EXPECT_THAT(Error({.sp_offload = "cpu"}), HasSubstr("--sp_offload requires --sp_chunk"));
  EXPECT_THAT(Error({.seq_len = 64, .sp_chunk = 65}),
              HasSubstr("--sp_chunk 65 is not smaller than the 64 tokens of a sample (--seq_len)"));
  EXPECT_TRUE(GatherTrainInputs({.seq_len = 64, .sp_chunk = 64}, share_, 1).ok());
  EXPECT_THAT(Error({.seq_len = 64, .sp_chunk = 64, .sp_offload = "cpu"}),
              HasSubstr("--sp_offload has nothing to offload: --sp_chunk 64 is the full sample"));
}

TEST_F(TrainInputsTest, ParameterGroupsGoToTheJob) {
  const auto plain = GatherTrainInputs({}, share_, 1);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_FALSE(plain->job.no_decay_on_norms_and_biases);
  EXPECT_EQ(plain->job.layer_decay, 1.0);
  const auto inputs =
      GatherTrainInputs({.no_decay_on_norms_and_biases = true, .layer_decay = 0.8}, share_, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_TRUE(inputs->job.no_decay_on_norms_and_biases);
  EXPECT_EQ(inputs->job.layer_decay, 0.8);
}

TEST_F(TrainInputsTest, PassesEvaluationToTheJob) {
  TrainFlags flags{.data = {Path("data.txt")}, .eval_data = {Path("data.txt")}};
  const auto inputs = GatherTrainInputs(flags, share_, 2);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_THAT(inputs->job.eval_data, ElementsAre(Path("data.txt")));
  // A resumed job may be evaluated on something else.
  const auto resumed = OverrideTrainInputs(inputs->job, {.eval_split = 0.25}, share_, 2);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_TRUE(resumed->job.eval_data.empty());
  EXPECT_EQ(resumed->job.eval_split, 0.25);
  flags.eval_split = 0.25;
  EXPECT_THAT(Error(flags), HasSubstr("give one"));
  EXPECT_THAT(Error({.eval_split = 1.0}), HasSubstr("nothing of --data would be left"));
  EXPECT_THAT(Error({.eval_every = 5}),
              HasSubstr("needs evaluation data: --eval_data or --eval_split"));
  EXPECT_THAT(Error({.eval_split = 0.5, .save_best = true}),
              HasSubstr("--save_best compares evaluations: add --eval_every N"));
  EXPECT_THAT(Error({.eval_split = 0.5, .load_best_model_at_end = true}),
              HasSubstr("--load_best_model_at_end compares evaluations: add --eval_every N"));
  EXPECT_THAT(Error({.eval_split = 0.5, .eval_patience = 2}),
              HasSubstr("--eval_patience compares evaluations"));
  EXPECT_THAT(Error({.eval_data = {Path("no.txt")}}), HasSubstr("--eval_data " + Path("no.txt")));
}

TEST_F(TrainInputsTest, ABlendHasAWeightForEveryPath) {
  TrainFlags flags{.data = {Path("data.txt"), Path("data.txt")}, .data_weights = {3.0, 1.0}};
  const auto inputs = GatherTrainInputs(flags, share_, 2);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_THAT(inputs->job.data_weights, ElementsAre(3.0, 1.0));
  EXPECT_THAT(OverrideTrainInputs(inputs->job, {}, share_, 2)->job.data_weights,
              ElementsAre(3.0, 1.0));
  // The weights belong to the paths that they were given with.
  const auto other = OverrideTrainInputs(inputs->job, {.data = {Path("data.txt")}}, share_, 2);
  EXPECT_TRUE(other->job.data_weights.empty());
  flags.data_weights = {3.0};
  EXPECT_THAT(Error(flags), HasSubstr("--data_weights: 1 for 2 paths of --data; give each one"));
  flags.data.resize(1);
  flags.data_weights = {0.5, 0.5};
  EXPECT_THAT(Error(flags), HasSubstr("--data_weights: 2 for 1 path of --data; give each one"));
}

TEST_F(TrainInputsTest, UsesTheModelsTokenizerUnlessAnotherIsNamed) {
  EXPECT_EQ(GatherTrainInputs({.model = Path("model")}, share_, 2)->job.tokenizer, "");
  Write("model/tokenizer.json", "{}");
  EXPECT_EQ(GatherTrainInputs({.model = Path("model")}, share_, 2)->job.tokenizer, Path("model"));
  TrainFlags flags{.model = Path("model"), .tokenizer = "bytes"};
  EXPECT_EQ(GatherTrainInputs(flags, share_, 2)->job.tokenizer, "");
  flags.tokenizer = Path("empty");
  EXPECT_THAT(Error(flags), HasSubstr("no folder with a tokenizer.json"));
}

TEST_F(TrainInputsTest, RefusesScheduleFlagsThatMeanNothing) {
  TrainFlags flags;
  flags.schedule.given = {{"warmup_num_steps", 5}};
  EXPECT_THAT(Error(flags), HasSubstr("--warmup_num_steps needs --lr_schedule"));
  flags.schedule.lr_schedule = "OneCycle";
  EXPECT_THAT(Error(flags),
              HasSubstr("--warmup_num_steps is not a parameter of --lr_schedule OneCycle"));
  flags.schedule = {.lr_schedule = "WarmupLr", .given = {}};
  EXPECT_THAT(Error(flags), HasSubstr("did you mean 'WarmupLR'?"));
  flags.data = {Path("data.txt")};
  flags.schedule = {.lr_schedule = "WarmupDecayLR", .given = {}};
  EXPECT_EQ(Error(flags), "accepted") << "ranks count the steps of the one epoch";
}

// A preset of this name would be another model, with random weights.
TEST_F(TrainInputsTest, AModelThatCannotBeReachedIsNotAbsent) {
  std::filesystem::create_symlink("loop", Path("loop"));  // to itself
  EXPECT_THAT(Error({.model = Path("loop")}), HasSubstr("Too many levels of symbolic links"));
}

TEST_F(TrainInputsTest, RefusesMissingOrEmptyInputs) {
  EXPECT_EQ(
      Error({.model = "tyny"}),
      "--model tyny: no such folder, config.json or preset (presets: gpt2-demo, tiny); did you "
      "mean 'tiny'?");
  EXPECT_THAT(Error({.model = "tiny/tiny-1.5B"}),
              HasSubstr("tiny); dsrun downloads nothing: if it is a name of the Hugging Face Hub, "
                        "`hf download tiny/tiny-1.5B --local-dir tiny-1.5B` fetches it for --model "
                        "tiny-1.5B"));
  for (const char* path : {"./tiny/model", "tiny/model/config.json", "/tiny", "tiny/"}) {
    EXPECT_THAT(Error({.model = path}), Not(HasSubstr("downloads"))) << path;
  }
  EXPECT_THAT(Error({.tokenizer = "tiny/model"}), HasSubstr(" fetches it for --tokenizer model"));
  EXPECT_EQ(Error({.model = Path("empty")}),
            "--model " + Path("empty") + ": the folder has no config.json");
  EXPECT_EQ(Error({.data = {Path("nope")}}),
            "--data " + Path("nope") + ": no such data file or folder");
  EXPECT_EQ(Error({.data = {Path("data.txt"), Path("empty_file")}}),
            "--data " + Path("empty_file") + ": the file is empty");
  EXPECT_EQ(Error({.data = {Path("empty")}}),
            "--data " + Path("empty") + ": the data folder has no files");
  EXPECT_EQ(Error({.deepspeed_config = Path("nope.json")}),
            "--deepspeed_config: " + Path("nope.json") + ": No such file or directory");
}

TEST_F(TrainInputsTest, ReportsAllErrorsOfAConfigWithPositions) {
  Write("bad.json", "{\n  \"train_batch_sise\": 4,\n  \"bf16\": {\"enabled\": 3}\n}\n");
  const std::string error = Error({.deepspeed_config = Path("bad.json")});
  EXPECT_THAT(error, HasSubstr(Path("bad.json") + ":2:3: unknown key train_batch_sise"));
  EXPECT_THAT(error, HasSubstr("did you mean 'train_batch_size'?"));
  EXPECT_THAT(error, HasSubstr("\n" + Path("bad.json") + ":3:"));
}

TEST_F(TrainInputsTest, AnElasticConfigMustMatchTheScheduler) {
  Write("elastic.json", R"({"elasticity": {"enabled": true, "max_train_batch_size": 24,
      "micro_batch_sizes": [2, 4, 6]}})");
  const TrainFlags flags{.deepspeed_config = Path("elastic.json")};
  const auto inputs = GatherTrainInputs(flags, share_, 1);
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->resolved_config["train_batch_size"], 24);
  EXPECT_EQ(inputs->resolved_config["origins"]["train_batch_size"],
            "derived from elasticity, world size 1");
  ::setenv(config::kSchedulerElasticity, R"({"max_train_batch_size": 48})", 1);
  EXPECT_THAT(Error(flags), HasSubstr("max_train_batch_size is 24, but the scheduler has seen 48"));
  ::unsetenv(config::kSchedulerElasticity);
}

TEST_F(TrainInputsTest, AResumedJobKeepsSettingsThatAreNotOverridden) {
  config::TrainJob job = GatherTrainInputs({.seq_len = 8, .steps = 9}, share_, 1)->job;
  const auto more = OverrideTrainInputs(job, {.steps = 20}, share_, 1);
  ASSERT_TRUE(more.ok()) << more.status().message();
  EXPECT_EQ(more->job.steps, 20);
  EXPECT_EQ(more->job.seq_len, 8);
  for (const auto& [flags, name] : {std::pair{TrainFlags{.seq_len = 16}, "--seq_len"},
                                    {TrainFlags{.seed = 9}, "--seed"},
                                    {TrainFlags{.no_shuffle = true}, "--no_shuffle"}}) {
    EXPECT_THAT(OverrideTrainInputs(job, flags, share_, 1).status().message(),
                HasSubstr(std::string(name) + ": a run that is resumed reads its data on"));
  }
  EXPECT_TRUE(OverrideTrainInputs(job, {.seq_len = 8, .seed = 1234}, share_, 1).ok());
  const auto epochs = OverrideTrainInputs(job, {.epochs = 2}, share_, 1);
  EXPECT_EQ(epochs->job.steps, 0) << "epochs given now count, not the steps of then";
  job.data = {Path("gone")};
  EXPECT_FALSE(OverrideTrainInputs(job, {}, share_, 1).ok()) << "checked again";
}

TEST_F(TrainInputsTest, FlagsOfAResumeReplaceTheRunsConfig) {
  const TrainFlags first{.steps = 9, .training = {.learning_rate = 1e-3}};
  const config::TrainJob job = GatherTrainInputs(first, share_, 1)->job;
  const auto rate = [](const StatusOr<TrainInputs>& inputs) {
    EXPECT_TRUE(inputs.ok()) << inputs.status().message();
    return nlohmann::json::parse(inputs->job.ds_config)["optimizer"]["params"]["lr"].get<double>();
  };
  EXPECT_EQ(rate(OverrideTrainInputs(job, {}, share_, 1)), 1e-3);
  const TrainFlags now{.training = {.learning_rate = 5e-4}};
  EXPECT_EQ(rate(OverrideTrainInputs(job, now, share_, 1)), 5e-4);
  // A config that is given with them has to agree, as that of a new run.
  Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "optimizer": {"params": {"lr": 1}}})");
  TrainFlags both = now;
  both.deepspeed_config = Path("ds.json");
  EXPECT_FALSE(OverrideTrainInputs(job, both, share_, 1).ok());
}

TEST_F(TrainInputsTest, ThereMustBeACheckpointToResumeFrom) {
  std::vector<std::string> notices;
  const auto none = FindResumePoint(Path("checkpoints"), "", &notices);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(none.status().message(),
            "there is no checkpoint to resume from in " + Path("checkpoints"));
  fs::create_directories(Path("checkpoints/step-5"));
  EXPECT_THAT(FindResumePoint(Path("checkpoints"), "", &notices).status().message(),
              HasSubstr("/checkpoints: step-5 is skipped: it is damaged: "));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("step-5 is skipped: it is damaged: ")));
}

}  // namespace
}  // namespace ds::cli
