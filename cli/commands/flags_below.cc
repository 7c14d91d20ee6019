#include "cli/commands/flags_below.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands/translate_file.h"
#include "runtime/config/file/base_config.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
void PutGiven(const char* name, const std::optional<T>& given, Json* arguments) {
  if (given) (*arguments)[name] = *given;
}

// Steps and epochs are alternatives; the flag given replaces the argument. --steps is passed
// separately.
void PutLength(const TrainFlags& given, Json* arguments) {
  if (!given.epochs || given.steps) return;
  (*arguments)["max_steps"] = -1;
  (*arguments)["num_train_epochs"] = *given.epochs;
}

// Enabling one precision disables the other.
void PutPrecision(const config::TrainingFlags& given, Json* arguments) {
  if (given.bf16 == true) (*arguments)["fp16"] = false;
  if (given.fp16 == true) (*arguments)["bf16"] = false;
  PutGiven("bf16", given.bf16, arguments);
  PutGiven("fp16", given.fp16, arguments);
}

void PutSchedule(const TrainFlags& given, Json* arguments) {
  if (given.training.warmup_steps) (*arguments)["warmup_ratio"] = nullptr;
  PutGiven("warmup_steps", given.training.warmup_steps, arguments);
  const ScheduleFlags& schedule = given.schedule;
  if (!schedule.lr_scheduler_type.empty()) {
    (*arguments)["lr_scheduler_type"] = schedule.lr_scheduler_type;
  }
  if (!schedule.lr_scheduler_kwargs.empty()) {
    (*arguments)["lr_scheduler_kwargs"] = schedule.lr_scheduler_kwargs;
  }
}

// Converts the flags to arguments of Trainer.
Json ArgumentsOf(const TrainFlags& given) {
  Json arguments = Json::object();
  const config::TrainingFlags& training = given.training;
  PutGiven("per_device_train_batch_size", training.per_device_train_batch_size, &arguments);
  PutGiven("gradient_accumulation_steps", training.gradient_accumulation_steps, &arguments);
  PutGiven("learning_rate", training.learning_rate, &arguments);
  PutGiven("adam_beta1", training.adam_beta1, &arguments);
  PutGiven("adam_beta2", training.adam_beta2, &arguments);
  PutGiven("adam_epsilon", training.adam_epsilon, &arguments);
  PutGiven("weight_decay", training.weight_decay, &arguments);
  PutGiven("max_grad_norm", training.max_grad_norm, &arguments);
  PutGiven("seed", given.seed, &arguments);
  PutGiven("neftune_noise_alpha", given.neftune_noise_alpha, &arguments);
  PutLength(given, &arguments);
  PutPrecision(training, &arguments);
  PutSchedule(given, &arguments);
  return arguments;
}

// Returns the keys of Trainer's ds_config that no flag of the user replaces. Flags must agree with
// all keys of a ds_config of the user's own.
Json KeysToHold(const FlagsBelow& below, const TrainFlags& given, const TrainFlags& all) {
  Json keys = below.recipe.ds_config;
  const bool is_trainers_schedule = std::find(below.expressed.begin(), below.expressed.end(),
                                              "lr_scheduler_type") != below.expressed.end();
  if (all.schedule.any() || is_trainers_schedule) keys.erase("scheduler");
  const bool is_users_own = !given.deepspeed_config.empty();
  return is_users_own ? keys : config::DropFlagKeys(std::move(keys), given.training);
}

}  // namespace

StatusOr<FlagsBelow> ReadTrainerArguments(const std::string& path, const TrainFlags& given) {
  DS_ASSIGN_OR_RETURN(Translation translation,
                      TranslateTrainerFile(path, {.steps = given.steps,
                                                  .deepspeed_config = given.deepspeed_config,
                                                  .arguments = ArgumentsOf(given)}));
  FlagsBelow below{.name = path,
                   .recipe = {},
                   .launch = std::move(translation.launch),
                   .notices = {},
                   .expressed = std::move(translation.expressed),
                   .has_deepspeed = translation.has_deepspeed};
  below.recipe.flags = std::move(translation.flags);
  below.recipe.ds_config = std::move(translation.ds_config);
  for (const Remark& remark : translation.remarks) {
    const bool is_nearly = remark.mapping == Mapping::kNearly;
    if (!is_nearly && (remark.mapping != Mapping::kLeftOut || remark.text.empty())) continue;
    below.notices.push_back(path + ": " + remark.name + " " + remark.value +
                            (is_nearly ? " nearly maps: " : " is left out: ") + remark.text);
  }
  return below;
}

void LayOver(const FlagsBelow& below, TrainFlags* flags) {
  flags->base = config::BaseConfig{.name = below.name, .keys = below.recipe.ds_config};
  for (const std::string& name : below.expressed) {
    if (name == "bf16") flags->training.bf16.reset();
    if (name == "fp16") flags->training.fp16.reset();
    if (name == "lr_scheduler_type") flags->schedule.lr_scheduler_type.clear();
    if (name == "lr_scheduler_kwargs") flags->schedule.lr_scheduler_kwargs.clear();
  }
}

Status CheckAgreement(const FlagsBelow& below, const TrainFlags& given, const TrainFlags& all,
                      int world_size) {
  if (!below.has_deepspeed) return OkStatus();
  const bool is_users_own = !given.deepspeed_config.empty();
  config::JobFacts facts{.world_size = world_size,
                         .flags = all.training,
                         .total_steps = all.steps,
                         .steps_come_later = !all.steps};
  // A missing argument has Trainer's default, which also counts.
  if (!facts.flags.bf16) facts.flags.bf16 = false;
  if (!facts.flags.fp16) facts.flags.fp16 = false;
  if (!facts.flags.warmup_steps) facts.flags.warmup_steps = 0.0;
  std::string message;
  for (const config::Issue& issue :
       config::FindContradictions({.name = is_users_own ? "--deepspeed_config" : "its ds_config",
       .keys = KeysToHold(below, given, all)},
                                  facts)) {
    message += (message.empty() ? "" : "\n") + issue.message;
  }
  if (message.empty()) return OkStatus();
  return InvalidArgumentError("--from_hf_trainer " + below.name + ": " + message);
}

}  // namespace ds::cli
