// The learning rates of a job, whichever way it is asked for, are those of transformers' Trainer
// (goldens/trainer_rates.json): as dsrun resolves the config, as the ranks do, and after a resume.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "cli/commands/translate_file.h"
#include "cli/flags/flag_parser.h"
#include "cli/train/recipe.h"
#include "cli/train/train_inputs.h"
#include "runtime/base/files.h"
#include "runtime/config/file/check_config.h"
#include "runtime/plan/schedule/lr_schedule.h"
#include "tests/places.h"
#include "tests/unit/cli/train_folder.h"

namespace ds::cli {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Json = nlohmann::ordered_json;

const Json& Goldens() {
  static const Json goldens =
      Json::parse(*ReadFile(DS_SOURCE_DIR "/tests/unit/cli/goldens/trainer_rates.json"));
  return goldens;
}

std::vector<double> RatesOf(const config::DsConfig& config, std::int64_t steps) {
  std::vector<double> rates;
  for (std::int64_t i = 0; i < steps; ++i) {
    rates.push_back(optim::ValuesAfter(config.scheduler, config.optimizer.lr, i).lr);
  }
  return rates;
}

// As the ranks read the job (runtime/rank), which have counted its steps.
std::vector<double> RatesOnRanks(const config::TrainJob& job, std::int64_t steps) {
  config::JobFacts facts{.total_steps = steps, .steps_come_later = true};
  if (job.steps == 0 && job.warmup_share > 0.0) facts.flags.warmup_steps = job.warmup_share;
  const auto checked = config::CheckConfig(job.ds_config, "the job's", facts);
  EXPECT_TRUE(checked.ok) << checked.errors.at(0).message;
  return RatesOf(checked.config, steps);
}

class TrainRatesTest : public TrainFolderTest {
 protected:
  TrainFlags Parse(const std::vector<std::string>& words) {
    TrainFlags flags;
    FlagParser parser("", "");
    AddTrainFlags(parser.app(), &flags);
    EXPECT_TRUE(parser.Parse(words, FlagParser::RemainingWords::kRefused).ok());
    flags.data = {Path("data.txt")};
    flags.save_hf.clear();
    return flags;
  }
  TrainInputs Gather(const TrainFlags& flags) {
    auto inputs = GatherTrainInputs(flags, share_, 1);
    EXPECT_TRUE(inputs.ok()) << inputs.status().message();
    return *std::move(inputs);
  }
  TrainInputs Resume(const config::TrainJob& job, const TrainFlags& flags) {
    auto inputs = OverrideTrainInputs(job, flags, share_, 1);
    EXPECT_TRUE(inputs.ok()) << inputs.status().message();
    return *std::move(inputs);
  }
  // --from_hf_trainer: what Trainer's arguments come to, laid below nothing else.
  TrainFlags FromTrainer(Json arguments, const Json& deepspeed) {
    Write("ds_config.json", deepspeed.dump());
    if (!deepspeed.is_null()) arguments["deepspeed"] = Path("ds_config.json");
    Write("arguments.json", arguments.dump());
    const auto translation = TranslateTrainerFile(Path("arguments.json"), {});
    EXPECT_TRUE(translation.ok()) << translation.status().message();
    const Recipe below{.flags = translation->flags, .ds_config = translation->ds_config};
    TrainFlags flags = Parse(WordsBelow(below, {}));
    flags.base = config::BaseConfig{.name = "arguments.json", .keys = translation->ds_config};
    return flags;
  }
};

auto Near(const Json& rates) {
  return Pointwise(DoubleNear(1e-15), rates.get<std::vector<double>>());
}

TEST_F(TrainRatesTest, OfTrainersArgumentsAreTrainers) {
  for (const Json& golden : Goldens()) {
    SCOPED_TRACE(golden.dump());
    const auto steps = golden["arguments"]["max_steps"].get<std::int64_t>();
    const TrainInputs inputs = Gather(FromTrainer(golden["arguments"], golden["deepspeed"]));
    EXPECT_THAT(RatesOf(inputs.config, steps), Near(golden["rates"]));
    EXPECT_THAT(RatesOnRanks(inputs.job, steps), Near(golden["rates"]));
  }
}

// --deepspeed_config next to --from_hf_trainer is Trainer's own `deepspeed`.
TEST_F(TrainRatesTest, OfADsConfigNextToTrainersArgumentsAreThoseOfOneInside) {
  const Json arguments = {{"max_steps", 10},
                          {"warmup_steps", 6},
                          {"weight_decay", 0.1},
                          {"learning_rate", 3e-4},
                          {"bf16", true}};
  const Json optimizer = {{"type", "AdamW"}, {"params", {{"lr", "auto"}}}};
  const Json scheduler = {
      {"type", "WarmupDecayLR"},
      {"params",
       {{"warmup_num_steps", "auto"}, {"total_num_steps", "auto"}, {"warmup_max_lr", "auto"}}}};
  for (const Json& deepspeed : {Json{{"optimizer", optimizer}, {"scheduler", scheduler}},
                                Json{{"bf16", {{"enabled", "auto"}}}, {"optimizer", optimizer}},
                                Json{{"zero_optimization", {{"stage", 1}}}}, Json::object()}) {
    SCOPED_TRACE(deepspeed.dump());
    const TrainInputs inside = Gather(FromTrainer(arguments, deepspeed));
    Json other = arguments;  // its own gives way
    other["deepspeed"] = "/no/such/file.json";
    Write("other.json", other.dump());
    const auto translation =
        TranslateTrainerFile(Path("other.json"), {.deepspeed_config = Path("ds_config.json")});
    ASSERT_TRUE(translation.ok()) << translation.status().message();
    const Recipe below{.flags = translation->flags, .ds_config = translation->ds_config};
    std::vector<std::string> words = WordsBelow(below, {"deepspeed_config"});
    words.insert(words.end(), {"--deepspeed_config", Path("ds_config.json")});
    TrainFlags flags = Parse(words);
    flags.base = config::BaseConfig{.name = "other.json", .keys = translation->ds_config};
    const TrainInputs beside = Gather(flags);
    EXPECT_EQ(RatesOf(beside.config, 10), RatesOf(inside.config, 10));
    EXPECT_TRUE(beside.config.bf16.enabled);
    EXPECT_EQ(beside.job.no_decay_on_norms_and_biases, inside.job.no_decay_on_norms_and_biases);
  }
}

// Epochs are Trainer's default. The ranks count their steps.
TEST_F(TrainRatesTest, OfEpochsAreThoseOfTheirSteps) {
  for (const Json& golden : Goldens()) {
    SCOPED_TRACE(golden.dump());
    Json arguments = golden["arguments"];
    const auto steps = arguments["max_steps"].get<std::int64_t>();
    arguments.erase("max_steps");
    arguments["num_train_epochs"] = 2;
    const TrainInputs inputs = Gather(FromTrainer(arguments, golden["deepspeed"]));
    EXPECT_EQ(inputs.job.steps, 0);
    EXPECT_THAT(RatesOnRanks(inputs.job, steps), Near(golden["rates"]));
  }
}

// A run that began with fewer steps, and one of epochs.
TEST_F(TrainRatesTest, AfterAResumeAreThoseOfOneLongRun) {
  for (const Json& golden : Goldens()) {
    SCOPED_TRACE(golden.dump());
    Json arguments = golden["arguments"];
    const auto steps = arguments["max_steps"].get<std::int64_t>();
    for (const Json& length : {Json({{"max_steps", 4}}), Json({{"num_train_epochs", 1}})}) {
      arguments.erase("max_steps");
      arguments.update(length);
      const TrainInputs begun = Gather(FromTrainer(arguments, golden["deepspeed"]));
      const TrainInputs resumed = Resume(begun.job, {.steps = steps});
      EXPECT_THAT(RatesOf(resumed.config, steps), Near(golden["rates"]));
      EXPECT_THAT(RatesOnRanks(resumed.job, steps), Near(golden["rates"]));
      const TrainInputs again = Resume(Resume(begun.job, {.steps = 6}).job, {.steps = steps});
      EXPECT_THAT(RatesOf(again.config, steps), Near(golden["rates"]));
    }
  }
}

// The same by flags, over the built-in config.
TEST_F(TrainRatesTest, OfFlagsAreTrainers) {
  Write("share/configs/default_ds_config.json",
        *ReadFile(DS_SOURCE_DIR "/configs/default_ds_config.json"));
  int compared = 0;
  for (const Json& golden : Goldens()) {
    if (!golden["deepspeed"].is_null()) continue;
    SCOPED_TRACE(golden.dump());
    std::vector<std::string> words = {"--learning_rate", "5e-05", "--lr_scheduler_type", "linear"};
    for (const auto& [name, value] : golden["arguments"].items()) {
      const std::string flag = name == "max_steps"      ? "steps"
                               : name == "warmup_ratio" ? "warmup_steps"
                                                        : name;
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      const auto given = std::find(words.begin(), words.end(), "--" + flag);
      if (given != words.end()) words.erase(given, given + 2);
      words.insert(words.end(), {"--" + flag, text});
    }
    // Trainer's "constant" knows no warm-up and takes the argument; a flag that does nothing is
    // refused.
    if (golden["arguments"].value("lr_scheduler_type", "") == "constant") continue;
    const TrainInputs inputs = Gather(Parse(words));
    EXPECT_THAT(RatesOnRanks(inputs.job, inputs.job.steps), Near(golden["rates"]));
    ++compared;
  }
  EXPECT_GT(compared, 8);
}

// DeepSpeed's flags have defaults of their own, which do not hold where another flag says it.
TEST_F(TrainRatesTest, OfDeepSpeedsFlagsEndAtTheLearningRate) {
  for (const char* const schedule : {"WarmupLR", "WarmupDecayLR"}) {
    const TrainInputs inputs =
        Gather(Parse({"--steps", "9", "--lr_schedule", schedule, "--learning_rate", "3e-4",
                      "--warmup_steps", "3", "--warmup_type", "linear"}));
    const std::vector<double> rates = RatesOnRanks(inputs.job, 9);
    EXPECT_EQ(*std::max_element(rates.begin(), rates.end()), 3e-4) << schedule;
    EXPECT_EQ(rates[4], 3e-4) << schedule;
  }
  const TrainInputs own = Gather(Parse({"--steps", "9", "--lr_schedule", "WarmupLR"}));
  EXPECT_EQ(own.resolved_config["scheduler"]["params"]["warmup_max_lr"], 0.001);
}

// Each flag of training replaces what the built-in config says, and only that.
TEST_F(TrainRatesTest, EveryTrainingFlagWorksWithoutADsConfig) {
  Write("share/configs/default_ds_config.json",
        *ReadFile(DS_SOURCE_DIR "/configs/default_ds_config.json"));
  Write("config.json", R"({"model_type": "mixtral", "num_local_experts": 4, "hidden_size": 64,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
      "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 256})");
  struct Row {
    std::vector<std::string> words;
    const char* key;
    const char* value;
  };
  const Row rows[] = {
      {{"--learning_rate", "1e-5"}, "/optimizer/params/lr", "1e-05"},
      {{"--per_device_train_batch_size", "3"}, "/train_micro_batch_size_per_gpu", "3"},
      {{"--gradient_accumulation_steps", "5"}, "/gradient_accumulation_steps", "5"},
      {{"--adam_beta1", "0.8"}, "/optimizer/params/betas", "[0.8,0.95]"},
      {{"--adam_beta2", "0.99"}, "/optimizer/params/betas", "[0.9,0.99]"},
      {{"--adam_epsilon", "1e-6"}, "/optimizer/params/eps", "1e-06"},
      {{"--weight_decay", "0.25"}, "/optimizer/params/weight_decay", "0.25"},
      {{"--max_grad_norm", "0.5"}, "/gradient_clipping", "0.5"},
      {{"--warmup_steps", "7"}, "/scheduler/params/warmup_num_steps", "7"},
      {{"--warmup_steps", "0.5", "--steps", "8"}, "/scheduler/params/warmup_num_steps", "4"},
      {{"--warmup_steps", "0"}, "/scheduler/params/warmup_num_steps", "1"},
      {{"--bf16"}, "/bf16/enabled", "true"},
      {{"--fp16"}, "/fp16/enabled", "true"},
      {{"--tp", "2"}, "/tensor_parallel/autotp_size", "2"},
      {{"--sp", "2"}, "/sequence_parallel_size", "2"},
      {{"--pp", "2"}, "/pipeline/stages", "2"},
      {{"--ep", "2"}, "/expert_parallel/autoep_size", "2"},
  };
  const Json plain = Gather(Parse({})).resolved_config;
  for (const Row& row : rows) {
    TrainFlags flags = Parse(row.words);
    flags.model = Path("config.json");
    const auto inputs = GatherTrainInputs(flags, share_, 2);
    ASSERT_TRUE(inputs.ok()) << row.words[0] << ": " << inputs.status().message();
    EXPECT_EQ(inputs->resolved_config[Json::json_pointer(row.key)].dump(), row.value)
        << row.words[0];
    if (row.words[0] != "--learning_rate") {
      EXPECT_EQ(inputs->resolved_config["optimizer"]["params"]["lr"], 1e-3) << row.words[0];
    }
    if (row.words[0] != "--warmup_steps") {
      EXPECT_EQ(inputs->resolved_config["scheduler"], plain["scheduler"]) << row.words[0];
    }
  }
}

TEST_F(TrainRatesTest, AScheduleThatEndsBeforeTheRunIsNamed) {
  Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "scheduler": {"type": "WarmupDecayLR",
      "params": {"total_num_steps": 6, "warmup_num_steps": 2, "warmup_max_lr": 0.001}}})");
  const auto notices = [&](std::int64_t steps) {
    return Gather({.data = {Path("data.txt")}, .deepspeed_config = Path("ds.json"), .steps = steps})
        .notices;
  };
  EXPECT_THAT(notices(8), ::testing::Contains(HasSubstr(
                              "scheduler.params.total_num_steps is 6, so that scheduler.type "
                              "WarmupDecayLR ends at step 6, and the run has 8 steps")));
  EXPECT_THAT(notices(6), ::testing::Not(::testing::Contains(HasSubstr("ends at step"))));
}

// A config's own schedule, or none, is no reason against the flags that replace it.
TEST_F(TrainRatesTest, FlagsOfASchedulesReplaceThatOfTheConfig) {
  for (const char* const scheduler :
       {"", R"(, "scheduler": {"type": "StepLR", "params": {"step_size": 3}})",
        R"(, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.5,
            "warmup_num_steps": 9}})"}) {
    Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2)" + std::string(scheduler) + "}");
    TrainFlags flags = Parse({"--lr_scheduler_type", "linear", "--warmup_steps", "3", "--steps",
                              "8", "--learning_rate", "3e-4"});
    flags.deepspeed_config = Path("ds.json");
    EXPECT_THAT(RatesOnRanks(Gather(flags).job, 8), Near(Goldens()[1]["rates"]));
  }
}

// `resume RUN --lr_scheduler_type cosine` of a run with --warmup_steps 3 began at the full rate.
TEST_F(TrainRatesTest, AScheduleOfFlagsKeepsTheWarmUpThatItIsLaidOver) {
  const Json& golden = Goldens()[1];  // linear, 3 steps of a warm-up
  const std::vector<std::string> words = {"--lr_scheduler_type", "linear", "--steps", "8",
                                          "--learning_rate",     "3e-4"};
  Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "scheduler": {"type": "WarmupLR",
      "params": {"warmup_max_lr": "auto", "warmup_num_steps": 3}}})");
  TrainFlags own = Parse(words);
  own.deepspeed_config = Path("ds.json");
  EXPECT_THAT(RatesOnRanks(Gather(own).job, 8), Near(golden["rates"]));
  TrainFlags below = Parse(words);
  below.base =
      config::BaseConfig{.name = "recipe", .keys = Json::parse(*ReadFile(Path("ds.json")))};
  EXPECT_THAT(RatesOnRanks(Gather(below).job, 8), Near(golden["rates"]));
  const TrainInputs begun = Gather(Parse({"--lr_scheduler_type", "cosine", "--steps", "4",
                                          "--learning_rate", "3e-4", "--warmup_steps", "3"}));
  const TrainInputs resumed =
      Resume(begun.job, Parse({"--lr_scheduler_type", "linear", "--steps", "8"}));
  EXPECT_THAT(RatesOnRanks(resumed.job, 8), Near(golden["rates"]));
  const TrainInputs deepspeeds = Resume(begun.job, Parse({"--lr_schedule", "WarmupLR"}));
  EXPECT_EQ(deepspeeds.resolved_config["scheduler"]["params"]["warmup_num_steps"], 3);
}

TEST_F(TrainRatesTest, AScheduleWithoutAWarmUpLeavesAShareOut) {
  const TrainInputs begun = Gather(Parse({"--lr_scheduler_type", "cosine", "--steps", "8",
                                          "--learning_rate", "3e-4", "--warmup_steps", "0.5"}));
  const TrainInputs resumed = Resume(begun.job, Parse({"--lr_scheduler_type", "constant"}));
  EXPECT_EQ(RatesOnRanks(resumed.job, 8), std::vector<double>(8, 3e-4));
}

TEST_F(TrainRatesTest, FlagsOfSchedulesThatMeanNothingAreRefused) {
  const auto error = [&](const std::vector<std::string>& words) { return Error(Parse(words)); };
  EXPECT_THAT(error({"--lr_scheduler_kwargs", "{}"}), HasSubstr("needs --lr_scheduler_type"));
  EXPECT_THAT(error({"--lr_scheduler_type", "cosin"}), HasSubstr("did you mean 'cosine'?"));
  EXPECT_THAT(error({"--lr_scheduler_type", "cosine", "--lr_schedule", "WarmupLR"}),
              HasSubstr("ask for two schedules"));
  EXPECT_THAT(error({"--lr_scheduler_type", "cosine", "--lr_scheduler_kwargs", "3"}),
              HasSubstr("must be a JSON object"));
  EXPECT_THAT(error({"--lr_scheduler_type", "linear", "--lr_scheduler_kwargs", R"({"power": 2})"}),
              HasSubstr("scheduler.params.power is not a parameter of linear, which takes "
                        "warmup_num_steps, total_num_steps"));
  EXPECT_THAT(error({"--lr_scheduler_type", "warmup_stable_decay"}),
              HasSubstr("needs scheduler.params.num_decay_steps"));
}

}  // namespace
}  // namespace ds::cli
