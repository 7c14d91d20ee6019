// Flags that are numbers, through the commands' own parsers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/flags/flag_parser.h"
#include "cli/train/train_flags.h"

namespace ds::cli {
namespace {

StatusOr<TrainFlags> ParseTrain(const std::vector<std::string>& arguments) {
  TrainFlags flags;
  FlagParser parser("train", "test");
  AddTrainFlags(parser.app(), &flags);
  DS_RETURN_IF_ERROR(parser.Parse(arguments, FlagParser::RemainingWords::kRefused).status());
  return flags;
}

struct Refusal {
  const char* flag;
  const char* value;
  const char* message;  // behind "<flag>: <value> is not "
};

TEST(NumberChecksTest, TrainRefusesUnusableNumbers) {
  constexpr Refusal kRefusals[] = {
      {"--layer_decay", "nan", "a number above 0 and at most 1"},
      {"--layer_decay", "0", "a number above 0 and at most 1"},
      {"--layer_decay", "1.5", "a number above 0 and at most 1"},
      {"--seq_len", "0", "a whole number of at least 1"},
      {"--steps", "nan", "a whole number of at least 1"},
      {"--steps", "1e3", "a whole number of at least 1"},
      {"--steps", "010", "a whole number of at least 1"},
      {"--epochs", "0x10", "a whole number of at least 1"},
      {"--epochs", "9223372036854775808", "a whole number of at least 1"},
      {"--save_every", "-1", "a whole number of at least 0"},
      {"--seed", "-1", "a whole number of at least 0"},
      {"--learning_rate", "inf", "a finite number"},
      {"--learning_rate", "1e999", "a finite number"},
      {"--adam_beta1", "nan", "a finite number"},
      {"--adam_beta2", "-inf", "a finite number"},
      {"--adam_epsilon", "x", "a finite number"},
      {"--weight_decay", "Infinity", "a finite number"},
      {"--max_grad_norm", "NaN", "a finite number"},
      {"--warmup_steps", "1e", "a finite number"},
      {"--per_device_train_batch_size", "99999999999999999999", "a whole number"},
      {"--gradient_accumulation_steps", "1.5", "a whole number"},
      {"--warmup_max_lr", "inf", "a finite number"},
      {"--cycle_min_lr", "nan", "a finite number"},
      {"--cycle_first_step_size", "-0x1", "a whole number"},
  };
  for (const Refusal& refusal : kRefusals) {
    const auto parsed = ParseTrain({refusal.flag, refusal.value});
    ASSERT_FALSE(parsed.ok()) << refusal.flag << " " << refusal.value;
    EXPECT_EQ(parsed.status().message(),
              std::string(refusal.flag) + ": " + refusal.value + " is not " + refusal.message);
  }
}

TEST(NumberChecksTest, NumbersArriveAsTheyAreWritten) {
  const auto flags = ParseTrain({"--layer_decay", "0.75", "--steps=9223372036854775807", "--seed",
                                 "0", "--learning_rate", "3e-4", "--weight_decay", "-0.5",
                                 "--warmup_steps", ".1", "--gradient_accumulation_steps", "-3",
                                 "--cycle_first_stair_count", "-1", "--cycle_min_lr", "1E-3"});
  ASSERT_TRUE(flags.ok()) << flags.status().message();
  EXPECT_EQ(flags->layer_decay, 0.75);
  EXPECT_EQ(flags->steps, 9223372036854775807);
  EXPECT_EQ(flags->seed, 0U);
  EXPECT_EQ(flags->training.learning_rate, 3e-4);
  // What is in range is said by the rules of the ds_config, which know the key.
  EXPECT_EQ(flags->training.weight_decay, -0.5);
  EXPECT_EQ(flags->training.warmup_steps, 0.1);
  EXPECT_EQ(flags->training.gradient_accumulation_steps, -3);
  EXPECT_EQ(flags->schedule.given.at("cycle_first_stair_count"), -1);
  EXPECT_EQ(flags->schedule.given.at("cycle_min_lr"), 1e-3);
}

}  // namespace
}  // namespace ds::cli
