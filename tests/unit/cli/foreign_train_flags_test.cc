// Command lines of other training programs behind `train`: what each of their flags comes to.

#include "cli/commands/foreign_train_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/train/recipe.h"
#include "cli/train/train_flags.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct TrainWords {
  TrainFlags train;
  LaunchFlags launch;
  std::vector<std::string> given;
  Status status;
};

TrainWords ParseTrainWords(const std::vector<std::string>& words) {
  TrainWords parsed;
  FlagParser parser("train", "");
  AddTrainFlags(parser.app(), &parsed.train);
  AddLaunchFlags(&parser, &parsed.launch);
  TakeForeignTrainFlags(&parser);
  parsed.status = parser.Parse(words, FlagParser::RemainingWords::kRefused).status();
  parsed.given = parser.Given();
  return parsed;
}

std::string ErrorOfWords(const std::vector<std::string>& words) {
  return std::string(ParseTrainWords(words).status.message());
}

TEST(ForeignTrainFlagsTest, TrainersScriptsAreTaken) {
  const TrainWords parsed = ParseTrainWords({"--model_name_or_path",
                                             "llama",
                                             "--train_file=a.txt",
                                             "--validation_file",
                                             "b.txt",
                                             "--num_train_epochs",
                                             "3",
                                             "--block_size",
                                             "512",
                                             "--per_device_train_batch_size",
                                             "4",
                                             "--gradient_checkpointing",
                                             "True",
                                             "--bf16",
                                             "True",
                                             "--save_steps",
                                             "50",
                                             "--eval_steps",
                                             "10",
                                             "--num_warmup_steps",
                                             "12",
                                             "--deepspeed",
                                             "ds.json",
                                             "--tokenizer_name",
                                             "tok",
                                             "--learning_rate",
                                             "2e-5"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
  EXPECT_EQ(parsed.train.model, "llama");
  EXPECT_THAT(parsed.train.data, ElementsAre("a.txt"));
  EXPECT_THAT(parsed.train.eval_data, ElementsAre("b.txt"));
  EXPECT_EQ(parsed.train.epochs, 3);
  EXPECT_EQ(parsed.train.seq_len, 512);
  EXPECT_EQ(parsed.train.recompute, "full");
  EXPECT_EQ(parsed.train.training.bf16, true);
  EXPECT_EQ(parsed.train.save_every, 50);
  EXPECT_EQ(parsed.train.eval_every, 10);
  EXPECT_EQ(parsed.train.training.warmup_steps, 12);
  EXPECT_EQ(parsed.train.deepspeed_config, "ds.json");
  EXPECT_EQ(parsed.train.tokenizer, "tok");
}

TEST(ForeignTrainFlagsTest, MegatronsSizesAreTaken) {
  const TrainWords parsed = ParseTrainWords(
      {"--tensor-model-parallel-size", "4", "--pipeline-model-parallel-size=2",
       "--expert-model-parallel-size", "2", "--micro-batch-size", "8", "--seq-length", "1024",
       "--train-iters", "500", "--lr", "1.5e-4", "--clip-grad", "0.5", "--data-path", "corpus"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
  EXPECT_EQ(parsed.train.training.tp, 4);
  EXPECT_EQ(parsed.train.training.pp, 2);
  EXPECT_EQ(parsed.train.training.ep, 2);
  EXPECT_EQ(parsed.train.training.per_device_train_batch_size, 8);
  EXPECT_EQ(parsed.train.seq_len, 1024);
  EXPECT_EQ(parsed.train.steps, 500);
  EXPECT_EQ(parsed.train.training.learning_rate, 1.5e-4);
  EXPECT_EQ(parsed.train.training.max_grad_norm, 0.5);
  EXPECT_THAT(parsed.train.data, ElementsAre("corpus"));
}

TEST(ForeignTrainFlagsTest, AbsentSwitchesAreSilent) {
  const TrainWords parsed = ParseTrainWords({"--steps", "3"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
  const TrainFlags& train = parsed.train;
  for (const std::optional<bool>& given :
       {train.save_best, train.load_best_model_at_end, train.no_shuffle, train.lora_rslora,
        train.lora_dora, train.lora_merge, train.encrypt, train.no_decay_on_norms_and_biases,
        train.training.bf16, train.training.fp16}) {
    EXPECT_FALSE(given.has_value());
  }
  EXPECT_EQ(ParseTrainWords({"--bf16=false"}).train.training.bf16, std::optional<bool>(false));
  EXPECT_EQ(ParseTrainWords({"--bf16"}).train.training.bf16, std::optional<bool>(true));
}

TEST(ForeignTrainFlagsTest, ReportsFalseSwitches) {
  const TrainWords parsed = ParseTrainWords({"--gradient_checkpointing", "False", "--fp16=false",
                                             "--use_dora", "true", "--use_rslora=n", "--bf16"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
  EXPECT_EQ(parsed.train.recompute, "none");
  EXPECT_EQ(parsed.train.training.fp16, false);
  EXPECT_EQ(parsed.train.training.bf16, true);
  EXPECT_EQ(parsed.train.lora_dora, true);
  EXPECT_EQ(parsed.train.lora_rslora, false);
}

// string_to_bool of transformers' HfArgumentParser (5.24), and CLI11's on and off.
TEST(ForeignTrainFlagsTest, SwitchesTakeTransformersWords) {
  for (const char* no : {"no", "No", "false", "FALSE", "f", "n", "N", "0", "off"}) {
    EXPECT_EQ(ParseTrainWords({std::string("--bf16=") + no}).train.training.bf16, false) << no;
    EXPECT_EQ(ParseTrainWords({"--fp16", no}).train.training.fp16, false) << no;
    EXPECT_EQ(ParseTrainWords({"--gradient_checkpointing", no}).train.recompute, "none") << no;
    EXPECT_EQ(ParseTrainWords({"--use_cpu", no}).launch.device, Device::kAuto) << no;
  }
  for (const char* yes : {"yes", "True", "t", "Y", "1", "On"}) {
    EXPECT_EQ(ParseTrainWords({std::string("--bf16=") + yes}).train.training.bf16, true) << yes;
    EXPECT_EQ(ParseTrainWords({"--activation-checkpointing", yes}).train.recompute, "full") << yes;
    EXPECT_EQ(ParseTrainWords({"--no_cuda", yes}).launch.device, Device::kCpu) << yes;
  }
  for (const char* word : {"--bf16=maybe", "--gradient_checkpointing=2", "--use_cpu=none"}) {
    EXPECT_THAT(ErrorOfWords({word}), HasSubstr(std::string(word) + ": a switch is true or false"));
  }
}

TEST(ForeignTrainFlagsTest, SwitchesOfDsrunAcceptTrueAndFalse) {
  const TrainWords parsed =
      ParseTrainWords({"--load_best_model_at_end", "True", "--no_shuffle", "false", "--save-best",
                       "False", "--lora_merge", "--steps", "3"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
  EXPECT_EQ(parsed.train.load_best_model_at_end, true);
  EXPECT_EQ(parsed.train.no_shuffle, false);
  EXPECT_EQ(parsed.train.save_best, false);
  EXPECT_EQ(parsed.train.steps, 3);
  EXPECT_THAT(ErrorOfWords({"--no_shuffle", "maybe"}), HasSubstr("unexpected argument 'maybe'"));
  EXPECT_EQ(ParseTrainWords({"--data", "true"}).train.data, std::vector<std::string>{"true"});
}

// Trainer's default is 3.0 epochs.
TEST(ForeignTrainFlagsTest, CountsMayHaveAPoint) {
  const TrainWords parsed =
      ParseTrainWords({"--num_train_epochs", "3.0", "--save_steps=5.0", "--eval-steps", "20."});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
  EXPECT_EQ(parsed.train.epochs, 3);
  EXPECT_EQ(parsed.train.save_every, 5);
  EXPECT_EQ(parsed.train.eval_every, 20);
  EXPECT_THAT(ErrorOfWords({"--num_train_epochs", "2.5"}), HasSubstr("2.5 is not a whole number"));
  EXPECT_THAT(ErrorOfWords({"--save_steps=0.5"}), HasSubstr("0.5 is not a whole number"));
  EXPECT_THAT(ErrorOfWords({"--epochs", "3.0"}), HasSubstr("3.0 is not a whole number"));
}

// `train --recipe R --bf16=false` left the recipe's --bf16 on.
TEST(ForeignTrainFlagsTest, FalseSwitchesOverrideTheFile) {
  const Recipe below{.flags = {{"bf16", true}, {"recompute", "full"}, {"lora_dora", true}}};
  const TrainWords parsed =
      ParseTrainWords({"--bf16=0", "--gradient_checkpointing", "False", "--use_dora=no"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
  EXPECT_THAT(WordsBelow(below, parsed.given), IsEmpty());
  EXPECT_THAT(WordsBelow(below, ParseTrainWords({"--fp16=0"}).given),
              ElementsAre("--bf16", "--recompute", "full", "--lora_dora"));
}

// DeepSpeed's --deepspeed is a switch, Trainer's has the config.
TEST(ForeignTrainFlagsTest, DeepSpeedsSwitchMayAccompanyItsConfig) {
  const std::vector<std::vector<std::string>> lines = {
      {"--deepspeed", "--deepspeed_config", "ds.json"},
      {"--deepspeed-config=ds.json", "--deepspeed"},
      {"--deepspeed", "--steps", "3", "--deepspeed_config", "ds.json"},
      {"--deepspeed", "ds.json"},
      {"--deepspeed=ds.json"}};
  for (const std::vector<std::string>& words : lines) {
    const TrainWords parsed = ParseTrainWords(words);
    EXPECT_TRUE(parsed.status.ok()) << parsed.status.message();
    EXPECT_EQ(parsed.train.deepspeed_config, "ds.json");
  }
  EXPECT_FALSE(ParseTrainWords({"--deepspeed"}).status.ok()) << "no config is named";
  EXPECT_FALSE(ParseTrainWords({"--deepspeed", "--steps", "3"}).status.ok());
}

// The later one won without a word.
TEST(ForeignTrainFlagsTest, TwoNamesOfAFlagDoNotContradictEachOther) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--steps", "1", "--max_steps", "5"}, "--steps 1 and --max_steps 5 are one flag"},
      {{"--max_steps=5", "--train-iters", "6"}, "--max_steps=5 and --train-iters 6 are one flag"},
      {{"--lr", "1e-4", "--learning_rate", "0.001"}, "--lr 1e-4 and --learning_rate 0.001 are"},
      {{"--use_cpu", "--device", "cuda"}, "--use_cpu and --device cuda are one flag"},
      {{"--recompute", "none", "--gradient_checkpointing", "True"},
       "--recompute none and --gradient_checkpointing are one flag"},
      {{"--use_dora", "--lora_dora=false"}, "--use_dora and --lora_dora=false are one flag"}};
  for (const auto& [words, sentence] : cases) {
    EXPECT_THAT(ErrorOfWords(words), HasSubstr(sentence));
  }
}

TEST(ForeignTrainFlagsTest, TwoNamesOfAFlagMayAgree) {
  const std::vector<std::vector<std::string>> lines = {
      {"--steps", "5", "--max_steps", "5.0"},
      {"--lr", "1e-4", "--learning_rate", "0.0001"},
      {"--no_cuda", "False", "--device", "cuda"},  // it may be anything then
      {"--use_cpu", "--device", "cpu"},
      {"--train_file", "a.txt", "--data", "b.txt"},  // both are taken
      {"--steps", "1", "--steps", "5"}};             // the last of one name counts
  for (const std::vector<std::string>& words : lines) EXPECT_EQ(ErrorOfWords(words), "");
  EXPECT_EQ(ParseTrainWords(lines.back()).train.steps, 5);
}

TEST(ForeignTrainFlagsTest, OthersLeadToTheRightFlagOrKey) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--task", "reward"}, "unknown flag --task: train has one task, causal language modeling"},
      {{"--output_dir", "out"}, "unknown flag --output_dir: write --save_hf out for the trained"},
      {{"--zero_stage", "2"}, R"(write "zero_optimization": {"stage": 2} into the ds_config)"},
      {{"--lora_r", "16"}, "write --lora_rank 16 and --lora_alpha X"},
      {{"--lora_dim=8"}, "write --lora_rank 8 and --lora_alpha X"},
      {{"--use_peft"}, "--lora_rank 16 --lora_alpha 32 --lora_dropout 0.05"},
      {{"--logging_steps", "10"}, "metrics.jsonl has a line for every step"},
      {{"--lr_scheduler", "cosine"}, "write --lr_scheduler_type cosine"},
      // 1 is all steps as a ratio and one step as --warmup_steps; TRL drops the rest of a document.
      {{"--warmup_ratio", "0.1"}, "write --warmup_steps 0.1: below 1 it is a share of all steps"},
      {{"--warmup_ratio", "1.0"}, "write --warmup_steps N with the number of steps: 1.0 is not"},
      {{"--max_seq_length", "512"},
       "write --max_length 512 to truncate longer documents, or --seq"},
      {{"--report_to", "wandb"}, "metrics go to RUN_DIR/metrics.jsonl"},
      {{"--global-batch-size", "64"}, R"(write "train_batch_size": 64 into the ds_config)"},
      {{"--context-parallel-size", "2"}, "write --sp 2 --sp_kind ring"},
      {{"--noisy-gate-policy", "RSample"},
       R"(write "moe": {"enabled": true, "noisy_gate_policy": "RSample"} into the ds_config)"},
      {{"--min-capacity", "0"}, R"(write "moe": {"enabled": true, "min_capacity": 0})"},
      {{"--num-layers", "24"}, "--model DIR: its config.json has it"},
      {{"--data_split", "2,4,4"}, "write --eval_split SHARE"},
      {{"--training.steps", "7", "--metrics.log_freq", "1"}, "metrics.jsonl has a line"},
      // Of transformers' arguments what translate says.
      {{"--label_smoothing_factor", "0.1"}, "dsrun has no label smoothing"},
      {{"--dataloader_num_workers", "4"}, "does not affect the trained model; leave it out"},
  };
  for (const auto& [words, sentence] : cases) {
    EXPECT_THAT(ErrorOfWords(words), HasSubstr(sentence));
    EXPECT_THAT(ErrorOfWords(words), Not(HasSubstr("did you mean")));
  }
}

TEST(ForeignTrainFlagsTest, MisspellingsAloneAreGuessed) {
  EXPECT_THAT(ErrorOfWords({"--lerning_rate", "1"}), HasSubstr("did you mean '--learning_rate'?"));
  for (const char* word : {"--horizon", "--taskid", "--evaluators", "--lora_dims"}) {
    EXPECT_THAT(ErrorOfWords({word, "1"}), Not(HasSubstr("did you mean"))) << word;
  }
}

}  // namespace
}  // namespace ds::cli
