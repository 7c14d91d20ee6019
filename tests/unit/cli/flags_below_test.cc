// A flag over a file of Trainer's arguments is the file with this argument changed, and a ds_config
// is held against both as transformers does it (goldens of make_trainer_flag_goldens.py).

#include "cli/commands/flags_below.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <utility>

#include "cli/flags/flag_parser.h"
#include "cli/train/train_inputs.h"
#include "runtime/base/files.h"
#include "runtime/config/file/check_config.h"
#include "runtime/plan/schedule/lr_schedule.h"
#include "tests/places.h"
#include "tests/unit/cli/train_folder.h"

namespace ds::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

Json ReadTrainerGolden(const std::string& name) {
  return Json::parse(*ReadFile(DS_SOURCE_DIR "/tests/unit/cli/goldens/" + name));
}

// Arguments of Trainer as flags of `train`.
Words WordsOf(const Json& arguments) {
  Words words;
  for (const auto& [name, value] : arguments.items()) {
    const std::string flag = name == "max_steps" ? "steps" : name;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_boolean()) {
      words.push_back("--" + flag + "=" + text);
    } else {
      words.insert(words.end(), {"--" + flag, text});
    }
  }
  return words;
}

Json Changed(Json arguments, const Json& by) {
  arguments.update(by);
  return arguments;
}

std::vector<double> ScheduledRates(const TrainInputs& inputs) {
  std::vector<double> rates;
  for (std::int64_t i = 0; i < inputs.job.steps; ++i) {
    rates.push_back(optim::ValuesAfter(inputs.config.scheduler, inputs.config.optimizer.lr, i).lr);
  }
  return rates;
}

auto NearRates(const Json& rates) {
  return ::testing::Pointwise(::testing::DoubleNear(1e-15), rates.get<std::vector<double>>());
}

// All of a job but where its values come from.
std::pair<Json, std::string> Settled(const TrainInputs& inputs) {
  Json config = inputs.resolved_config;
  config.erase("origins");
  config::TrainJob job = inputs.job;
  job.ds_config.clear();
  job.derived_keys.clear();
  return {nlohmann::json(config), config::ToJson(job)};
}

class FlagsBelowTest : public TrainFolderTest {
 protected:
  TrainFlags ParseWords(const Words& words, Words* names = nullptr) {
    TrainFlags flags;
    FlagParser parser("", "");
    AddTrainFlags(parser.app(), &flags);
    const auto parsed = parser.Parse(words, FlagParser::RemainingWords::kRefused);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    if (names != nullptr) *names = parser.Given();
    flags.data = {Path("data.txt")};
    return flags;
  }

  // train --from_hf_trainer FILE with these words.
  StatusOr<TrainInputs> Train(const Json& arguments, const Words& words, int world_size = 1) {
    Write("arguments.json", arguments.dump());
    Words names;
    const TrainFlags given = ParseWords(words, &names);
    DS_ASSIGN_OR_RETURN(const FlagsBelow below,
                        ReadTrainerArguments(Path("arguments.json"), given));
    Words all_words = WordsBelow(below.recipe, names);
    all_words.insert(all_words.end(), words.begin(), words.end());
    TrainFlags all = ParseWords(all_words);
    LayOver(below, &all);
    DS_ASSIGN_OR_RETURN(TrainInputs inputs, GatherTrainInputs(all, share_, world_size));
    DS_RETURN_IF_ERROR(CheckAgreement(below, given, all, world_size));
    inputs.notices.insert(inputs.notices.end(), below.notices.begin(), below.notices.end());
    return inputs;
  }
  std::string ErrorOf(const Json& arguments, const Words& words, int world_size = 1) {
    return Train(arguments, words, world_size).status().message();
  }
};

TEST_F(FlagsBelowTest, RatesAreTrainersWithTheArgument) {
  int refused = 0;
  for (const Json& row : ReadTrainerGolden("trainer_flags.json")) {
    SCOPED_TRACE(row.dump());
    const auto inputs = Train(row["arguments"], WordsOf(row["flags"]));
    if (row["rates"].is_null()) {
      EXPECT_THAT(std::string(inputs.status().message()), HasSubstr("takes no"));
      ++refused;
      continue;
    }
    ASSERT_TRUE(inputs.ok()) << inputs.status().message();
    EXPECT_THAT(ScheduledRates(*inputs), NearRates(row["rates"]));
  }
  EXPECT_EQ(refused, 3);
}

// The run of the file, and then `resume RUN` with the flags.
TEST_F(FlagsBelowTest, RatesOfAResumeAreTrainersWithTheArgument) {
  int compared = 0;
  for (const Json& row : ReadTrainerGolden("trainer_flags.json")) {
    SCOPED_TRACE(row.dump());
    // The config of such a run has no place for a warm-up.
    if (row["arguments"].value("lr_scheduler_type", "") == "constant") continue;
    const auto begun = Train(row["arguments"], {});
    ASSERT_TRUE(begun.ok()) << begun.status().message();
    const auto resumed =
        OverrideTrainInputs(begun->job, ParseWords(WordsOf(row["flags"])), share_, 1);
    if (row["rates"].is_null()) {
      EXPECT_FALSE(resumed.ok());
      continue;
    }
    ASSERT_TRUE(resumed.ok()) << resumed.status().message();
    EXPECT_THAT(ScheduledRates(*resumed), NearRates(row["rates"]));
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST_F(FlagsBelowTest, AKwargThatTheNewScheduleDoesNotTakeIsNamed) {
  const Json below = {{"max_steps", 4},
                      {"lr_scheduler_type", "cosine_with_min_lr"},
                      {"lr_scheduler_kwargs", {{"min_lr_rate", 0.1}}}};
  EXPECT_THAT(ErrorOf(below, {"--lr_scheduler_type", "linear"}),
              HasSubstr("lr_scheduler_kwargs {\"min_lr_rate\":0.1}: linear takes none"));
  const auto begun = Train(below, {});
  ASSERT_TRUE(begun.ok()) << begun.status().message();
  EXPECT_EQ(
      OverrideTrainInputs(begun->job, ParseWords({"--lr_scheduler_type", "linear"}), share_, 1)
          .status()
          .message(),
      "--lr_scheduler_type linear takes no min_lr_rate, unlike the cosine_with_min_lr that it "
      "replaces: remove it with --lr_scheduler_kwargs '{}'");
}

// Each flag of the table over each file comes to the job of the file with the argument.
TEST_F(FlagsBelowTest, AFlagOverAFileIsTheFileWithTheArgument) {
  const Json autos = Json::parse(R"({"train_micro_batch_size_per_gpu": "auto",
      "gradient_accumulation_steps": "auto", "train_batch_size": "auto", "gradient_clipping": "auto",
      "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}})");
  const Json optimizer = Json::parse(R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto",
      "betas": "auto", "eps": "auto", "weight_decay": "auto"}}})");
  const Json scheduler = Json::parse(R"({"scheduler": {"type": "WarmupDecayLR", "params":
      {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
       "total_num_steps": "auto"}}})");
  const Json plain = {{"max_steps", 8}};
  const Json files[] = {
      plain,
      {{"max_steps", 8}, {"warmup_steps", 2}, {"lr_scheduler_type", "cosine"}, {"bf16", true}},
      {{"max_steps", 8}, {"warmup_ratio", 0.25}, {"weight_decay", 0.5}, {"fp16", true}},
      {{"max_steps", 8}, {"learning_rate", 1e-3}, {"adam_beta2", 0.95}, {"seed", 3}},
      {{"max_steps", 8}, {"block_size", 64}, {"warmup_steps", 3}, {"save_steps", 0.25}},
      {{"max_steps", 8}, {"fsdp", "full_shard"}, {"bf16", true}},
      Changed(plain, {{"deepspeed", autos}, {"bf16", true}}),
      Changed(plain, {{"deepspeed", Changed(autos, optimizer)}, {"warmup_steps", 2}}),
      Changed(plain, {{"deepspeed", Changed(Changed(autos, optimizer), scheduler)}}),
  };
  const Json flags[] = {
      {{"per_device_train_batch_size", 3}},
      {{"gradient_accumulation_steps", 5}},
      {{"learning_rate", 1e-5}},
      {{"adam_beta1", 0.8}},
      {{"adam_beta2", 0.99}},
      {{"adam_epsilon", 1e-6}},
      {{"weight_decay", 0.25}},
      {{"weight_decay", 0.0}},
      {{"max_grad_norm", 0.5}},
      {{"warmup_steps", 5}},
      {{"warmup_steps", 0.5}},
      {{"warmup_steps", 0}},
      {{"lr_scheduler_type", "polynomial"}},
      {{"lr_scheduler_type", "constant"}},
      {{"lr_scheduler_type", "cosine"}, {"lr_scheduler_kwargs", {{"num_cycles", 2}}}},
      {{"bf16", true}},
      {{"bf16", false}},
      {{"fp16", true}},
      {{"fp16", false}},
      {{"max_steps", 6}},
      {{"seed", 7}},
      {{"neftune_noise_alpha", 5.0}},
  };
  for (const Json& file : files) {
    for (const Json& flag : flags) {
      SCOPED_TRACE(file.dump() + " and " + flag.dump());
      // A schedule of a ds_config is DeepSpeed's in Trainer; the flag replaces it in dsrun.
      const bool has_schedule = file.contains(Json::json_pointer("/deepspeed/scheduler"));
      if (has_schedule && flag.contains("lr_scheduler_type")) continue;
      Json inside = Changed(file, flag);
      if (flag.contains("warmup_steps")) inside.erase("warmup_ratio");
      if (flag.value("bf16", false)) inside.erase("fp16");
      if (flag.value("fp16", false)) inside.erase("bf16");
      const auto wanted = Train(inside, {});
      ASSERT_TRUE(wanted.ok()) << wanted.status().message();
      const auto over = Train(file, WordsOf(flag));
      ASSERT_TRUE(over.ok()) << over.status().message();
      EXPECT_EQ(Settled(*over), Settled(*wanted));
    }
  }
}

TEST_F(FlagsBelowTest, EpochsGoBeforeTheStepsOfTheFile) {
  const auto inputs = Train({{"max_steps", 8}}, {"--epochs", "2"});
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_EQ(inputs->job.steps, 0);
  EXPECT_EQ(inputs->job.epochs, 2);
  const Json shares = {{"max_steps", 8}, {"save_steps", 0.25}};
  EXPECT_EQ(Train(shares, {})->job.save_every, 2);
  EXPECT_EQ(Train(shares, {"--steps", "16"})->job.save_every, 4);
  const auto epochs = Train(shares, {"--epochs", "2"});
  EXPECT_EQ(epochs->job.save_every, 0) << "a share of steps that nobody knows yet";
  EXPECT_THAT(epochs->notices, Contains(HasSubstr("give --save_every a number of steps")));
}

// `resume RUN --weight_decay` of a run without decay, too.
TEST_F(FlagsBelowTest, TrainersNormsAreNeverDecayed) {
  const auto over = Train({{"max_steps", 8}}, {"--weight_decay", "0.1"});
  ASSERT_TRUE(over.ok()) << over.status().message();
  EXPECT_TRUE(over->job.no_decay_on_norms_and_biases);
  EXPECT_EQ(over->config.optimizer.weight_decay, 0.1);
  const auto begun = Train({{"max_steps", 8}}, {});
  const auto resumed =
      OverrideTrainInputs(begun->job, ParseWords({"--weight_decay", "0.1"}), share_, 1);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_TRUE(resumed->job.no_decay_on_norms_and_biases);
}

TEST_F(FlagsBelowTest, NearlyMappedSettingsAreNotices) {
  const auto inputs = Train({{"num_train_epochs", 3}}, {});
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  EXPECT_THAT(inputs->notices,
              Contains(HasSubstr("num_train_epochs 3 nearly maps: --epochs; when rows do not fill "
                                 "the last step of an epoch, Trainer runs it with fewer")));
}

// The error names the keys of a golden's row.
void ExpectNamed(const Json& mismatches, const std::string& error) {
  EXPECT_EQ(error.empty(), mismatches.empty()) << error;
  for (const Json& key : mismatches) {
    EXPECT_THAT(error, HasSubstr(key.get<std::string>() + " "));
  }
}

TEST_F(FlagsBelowTest, ADsConfigIsHeldAgainstTheArgumentsAsInTransformers) {
  int refused = 0;
  for (const Json& row : ReadTrainerGolden("trainer_mismatches.json")) {
    SCOPED_TRACE(row.dump());
    const int world_size = row["world_size"];
    const Json arguments = Changed(row["arguments"], {{"deepspeed", row["deepspeed"]}});
    ExpectNamed(row["mismatches"], ErrorOf(arguments, {}, world_size));
    Write("ds.json", row["deepspeed"].dump());
    ExpectNamed(row["mismatches"],
                ErrorOf(row["arguments"], {"--deepspeed_config", Path("ds.json")}, world_size));
    refused += row["mismatches"].empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 12);
}

// Without Trainer's file, flags count that are given. A schedule may have other steps than the run.
TEST_F(FlagsBelowTest, ADsConfigIsHeldAgainstFlagsAsInTransformers) {
  const Json defaults = {{"gradient_accumulation_steps", 1},
                         {"max_grad_norm", 1.0},
                         {"adam_beta1", 0.9},
                         {"adam_beta2", 0.999},
                         {"adam_epsilon", 1e-8},
                         {"weight_decay", 0.0},
                         {"bf16", false},
                         {"fp16", false}};
  for (const Json& row : ReadTrainerGolden("trainer_mismatches.json")) {
    if (row["arguments"].contains("bf16_full_eval")) continue;  // no flag
    SCOPED_TRACE(row.dump());
    Write("ds.json", row["deepspeed"].dump());
    Words words = WordsOf(Changed(defaults, row["arguments"]));
    words.insert(words.end(), {"--deepspeed_config", Path("ds.json")});
    const auto inputs = GatherTrainInputs(ParseWords(words), share_, row["world_size"]);
    const bool has_other_steps =
        row["mismatches"].dump().find("total_num_steps") != std::string::npos;
    const bool is_right = row["mismatches"].empty() || has_other_steps;
    EXPECT_EQ(inputs.ok(), is_right) << inputs.status().message();
    for (const Json& key : row["mismatches"]) {
      if (is_right) break;
      EXPECT_THAT(std::string(inputs.status().message()), HasSubstr(key.get<std::string>()));
    }
  }
}

TEST_F(FlagsBelowTest, AFlagReplacesContradictingSettings) {
  const Json deepspeed = Json::parse(R"({"train_batch_size": 8, "gradient_clipping": 1.0,
      "bf16": {"enabled": false}, "scheduler": {"type": "WarmupLR", "params":
      {"warmup_num_steps": 2, "warmup_max_lr": 5e-5}}})");
  const Json arguments = {{"max_steps", 4}, {"warmup_steps", 2}, {"deepspeed", deepspeed}};
  for (const Words& words :
       {Words{}, Words{"--per_device_train_batch_size", "2"}, Words{"--max_grad_norm", "0.5"},
        Words{"--bf16"}, Words{"--warmup_steps", "3"}, Words{"--learning_rate", "1e-3"},
        Words{"--lr_scheduler_type", "linear"}}) {
    EXPECT_EQ(ErrorOf(arguments, words), "") << ::testing::PrintToString(words);
  }
}

TEST_F(FlagsBelowTest, RefusesATotalThatContradictsEpochs) {
  const Json deepspeed = Json::parse(R"({"scheduler": {"type": "WarmupDecayLR", "params":
      {"warmup_num_steps": "auto", "total_num_steps": 100}}})");
  EXPECT_THAT(ErrorOf({{"num_train_epochs", 2}, {"deepspeed", deepspeed}}, {}),
              HasSubstr("total_num_steps is 100 here, but the steps of --epochs are counted when "
                        "the run starts: write \"auto\" here, or give --steps"));
}

}  // namespace
}  // namespace ds::cli
