#include "runtime/config/sections/auto_values.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/schedule_types.h"
#include "runtime/config/sections/parallel_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// The defaults of transformers' TrainingArguments that differ from DeepSpeed's.
constexpr std::int64_t kDefaultMicroBatch = 8;
constexpr double kDefaultLearningRate = 5e-5;
constexpr double kDefaultBeta1 = 0.9;
constexpr double kDefaultBeta2 = 0.999;

constexpr Key kTrainBatch = keys::kTrainBatchSize;
constexpr Key kMicroBatch = keys::kTrainMicroBatchSizePerGpu;
constexpr Key kLearningRate = keys::kOptimizerParamsLr;
constexpr Key kBetas = keys::kOptimizerParamsBetas;
constexpr Key kWarmupEnd = keys::kSchedulerParamsWarmupMaxLr;
constexpr Key kWarmupSteps = keys::kSchedulerParamsWarmupNumSteps;
constexpr Key kTotalSteps = keys::kSchedulerParamsTotalNumSteps;
constexpr Key kReduceBucket = keys::kZeroOptimizationReduceBucketSize;
constexpr Key kPrefetchBucket = keys::kZeroOptimizationStage3PrefetchBucketSize;
constexpr Key kPersistence = keys::kZeroOptimizationStage3ParamPersistenceThreshold;

// FlagValue is the value of a flag for a key.
struct FlagValue {
  Key key;
  std::string flag;
  Json value;
  bool fills = true;  // false: only has to agree; another rule derives the key
  Json said = value;  // as the user wrote it
  Values::Source source = Values::Source::kUser;
};

// Returns the shortest warm-up: DeepSpeed needs a positive number, schedules of transformers do
// not.
std::int64_t NoWarmup(const Values& values) {
  const ScheduleType* const type = ChosenSchedule(values);
  return type != nullptr && FindTransformersSchedule(type->name) != nullptr ? 0 : 1;
}

// Returns true for a warm-up of 0 steps where there is no warm-up anyway.
bool AsksForNothing(const Values& values, double warmup) {
  const ScheduleType* const type = ChosenSchedule(values);
  return warmup == 0.0 && (type == nullptr || !type->Takes(kWarmupSteps));
}

// Returns the scheduler steps of a warm-up given as steps or as a fraction of all steps, counted as
// in transformers.
std::optional<std::int64_t> WarmupSteps(double given, std::optional<std::int64_t> total,
                                        std::int64_t least) {
  if (given >= 1 || given == 0) return std::max(least, static_cast<std::int64_t>(given));
  if (!total) return std::nullopt;
  return std::max(least, static_cast<std::int64_t>(std::ceil(given * static_cast<double>(*total))));
}

// Lists the keys of the given flags. `betas` are the config's, used for a beta without a flag.
std::vector<FlagValue> GivenFlags(const TrainingFlags& flags, const Json& betas) {
  std::vector<FlagValue> given;
  const auto add = [&](Key key, const char* flag, const auto& value) {
    if (value) given.push_back({key, flag, *value});
  };
  add(kMicroBatch, "--per_device_train_batch_size", flags.per_device_train_batch_size);
  add(keys::kGradientAccumulationSteps, "--gradient_accumulation_steps",
      flags.gradient_accumulation_steps);
  add(kLearningRate, "--learning_rate", flags.learning_rate);
  if (flags.learning_rate) {
    given.push_back({kWarmupEnd, "--learning_rate", *flags.learning_rate, /*fills=*/false});
  }
  if (flags.adam_beta1 || flags.adam_beta2) {
    const char* const names = !flags.adam_beta1   ? "--adam_beta2"
                              : !flags.adam_beta2 ? "--adam_beta1"
                                                  : "--adam_beta1 and --adam_beta2";
    given.push_back({kBetas, names, BetasOfFlags(flags, betas)});
  }
  add(keys::kOptimizerParamsEps, "--adam_epsilon", flags.adam_epsilon);
  add(keys::kOptimizerParamsWeightDecay, "--weight_decay", flags.weight_decay);
  add(keys::kGradientClipping, "--max_grad_norm", flags.max_grad_norm);
  add(keys::kTensorParallelAutotpSize, "--tp", flags.tp);
  add(keys::kSequenceParallelSize, "--sp", flags.sp);
  add(keys::kPipelineStages, "--pp", flags.pp);
  add(keys::kExpertParallelAutoepSize, "--ep", flags.ep);
  if (flags.ep) given.push_back({keys::kExpertParallelEnabled, "--ep", true});
  add(keys::kFp16Enabled, "--fp16", flags.fp16);
  add(keys::kBf16Enabled, "--bf16", flags.bf16);
  return given;
}

void FillOrAgree(RuleContext& context, FlagValue flag) {
  Values& values = context.values;
  if (values.IsBroken(flag.key) || (!flag.fills && !values.IsGiven(flag.key))) return;
  if (const auto problem = CheckValue(*FindSetting(flag.key), &flag.value)) {
    context.issues.Error(flag.key, flag.flag + " " + *problem);
  } else if (!values.IsGiven(flag.key) || values.Get(flag.key) == "auto") {
    values.Resolve(flag.key, flag.value, flag.flag, flag.source);
  } else if (values.Get(flag.key) != flag.value) {
    context.issues.Error(flag.key,
                         std::string(flag.key) + " is " + ShortDump(values.Get(flag.key)) +
                             " here, but " + flag.flag + " says " + ShortDump(flag.said) +
                             ": make them agree, or write \"auto\" here",
                         values.PositionOf(flag.key));
  }
}

// Leaves a fraction of steps to the run, which knows the total.
void DeferWarmup(RuleContext& context) {
  Values& values = context.values;
  if (values.IsBroken(kWarmupSteps)) return;
  if (values.IsGiven(kWarmupSteps)) {
    context.issues.Error(kWarmupSteps,
                         std::string(kWarmupSteps) + " is " + ShortDump(values.Get(kWarmupSteps)) +
                             " here, but --warmup_steps is a share of all steps: leave one out",
                         values.PositionOf(kWarmupSteps));
    return;
  }
  values.Resolve(kWarmupSteps, "auto",
                 "--warmup_steps: a share of the steps of the run, known when it starts",
                 Values::Source::kAuto);
}

// Compares the file's total with the steps of the run, unless epochs leave these open.
void CheckStepTotal(RuleContext& context) {
  const auto& steps = context.facts.total_steps;
  if (steps) {
    return FillOrAgree(context,
                       {.key = kTotalSteps, .flag = "--steps", .value = *steps, .fills = false});
  }
  if (!context.values.IsGiven(kTotalSteps)) return;
  context.issues.Error(kTotalSteps,
                       std::string(kTotalSteps) + " is " +
                           ShortDump(context.values.Get(kTotalSteps)) +
                           " here, but the steps of --epochs are counted when the run starts: "
                           "write \"auto\" here, or give --steps",
                       context.values.PositionOf(kTotalSteps));
}

// Compares the file's samples per step with the flags'.
void CheckSampleTotal(RuleContext& context) {
  const TrainingFlags& flags = context.facts.flags;
  const auto ranks = DataRanks(context);
  if (!flags.per_device_train_batch_size || !flags.gradient_accumulation_steps || !ranks) return;
  std::int64_t samples = 0;
  if (__builtin_mul_overflow(*flags.per_device_train_batch_size, *flags.gradient_accumulation_steps,
                             &samples) ||
      __builtin_mul_overflow(samples, *ranks, &samples)) {
    return;  // reported by the batch's own rules
  }
  FillOrAgree(context, {.key = kTrainBatch,
                        .flag = "--per_device_train_batch_size x --gradient_accumulation_steps x " +
                                NameDataRanks(context),
                        .value = samples,
                        .fills = false});
}

// The resolution of an "auto". An empty answer leaves the key to the other rules.
struct Answer {
  Json value;
  std::string why;
  std::string problem;  // why it cannot be resolved, and a remedy
};

Answer MicroBatch(const RuleContext& context) {
  const Values& values = context.values;
  if (values.IsGiven(kTrainBatch) || values.Get(keys::kElasticityEnabled) == true) return {};
  return {kDefaultMicroBatch, "as transformers has it without --per_device_train_batch_size", ""};
}

Answer LearningRate(const RuleContext&) {
  return {kDefaultLearningRate, "as transformers has it without --learning_rate", ""};
}

Answer Warmup(const RuleContext& context) {
  return {NoWarmup(context.values), "no warm-up, as transformers has it without --warmup_steps",
          ""};
}

Answer TotalSteps(const RuleContext& context) {
  if (context.facts.steps_come_later && !context.facts.total_steps) {
    return {"auto", "the steps of the run, known when it starts (or by --steps)", ""};
  }
  if (!context.facts.total_steps) return {.problem = "give the number of steps by --steps"};
  return {*context.facts.total_steps, "the steps of this run", ""};
}

// Derives a value from the hidden size by `rule`, which also describes the derivation.
template <typename Rule>
Answer FromHiddenSize(const RuleContext& context, Key key, const Rule& rule) {
  const auto& model = context.facts.model;
  if (!model) return {DefaultValue(*FindSetting(key)), "the default, as no model is given", ""};
  if (!model->hidden_size) {
    return {.problem = "the config.json of " + model->name + " has no hidden size; give a number"};
  }
  Answer answer = rule(*model->hidden_size);
  answer.why +=
      " of the hidden size, " + std::to_string(*model->hidden_size) + " in " + model->name;
  return answer;
}

Answer ReduceBucket(const RuleContext& context) {
  return FromHiddenSize(context, kReduceBucket, [](std::int64_t hidden) {
    return Answer{hidden * hidden, "the square", ""};
  });
}

Answer PrefetchBucket(const RuleContext& context) {
  return FromHiddenSize(context, kPrefetchBucket, [](std::int64_t hidden) {
    const double square = 0.9 * static_cast<double>(hidden) * static_cast<double>(hidden);
    return Answer{static_cast<std::int64_t>(square), "0.9 times the square", ""};
  });
}

Answer PersistenceThreshold(const RuleContext& context) {
  return FromHiddenSize(context, kPersistence, [](std::int64_t hidden) {
    return Answer{10 * hidden, "10 times", ""};
  });
}

struct AutoKey {
  Key key;
  Answer (*resolve)(const RuleContext& context);
  bool stage_3_only = false;  // elsewhere it is the default
  Key answered_by = key;      // the key that receives the answer, unless it is set
};

constexpr AutoKey kAutoKeys[] = {{kMicroBatch, MicroBatch},
                                 {kTrainBatch, MicroBatch, false, kMicroBatch},
                                 {kLearningRate, LearningRate},
                                 {kWarmupSteps, Warmup},
                                 {kTotalSteps, TotalSteps},
                                 {kReduceBucket, ReduceBucket},
                                 {kPrefetchBucket, PrefetchBucket, /*stage_3_only=*/true},
                                 {kPersistence, PersistenceThreshold, /*stage_3_only=*/true}};

void ResolveAuto(RuleContext& context, const AutoKey& key, JsonPosition position) {
  Answer answer = {DefaultValue(*FindSetting(key.key)), "the default below ZeRO stage 3", ""};
  if (!key.stage_3_only || context.values.Get(keys::kZeroOptimizationStage) == 3) {
    answer = key.resolve(context);
  }
  if (!answer.problem.empty()) {
    context.issues.Error(key.key, std::string(key.key) + " cannot be \"auto\": " + answer.problem,
                         position);
  }
  if (answer.value.is_null()) return;
  context.values.Resolve(
      key.answered_by, std::move(answer.value),
      "\"auto\" at " + context.issues.DescribePosition(position) + ": " + answer.why,
      Values::Source::kAuto);
}

// Resolves the keys for which "auto" depends on more than the file.
void ResolveTransformersAuto(RuleContext& context) {
  for (const AutoKey& key : kAutoKeys) {
    const auto& autos = context.values.autos();
    const auto found = autos.find(key.key);
    if (found == autos.end() || context.values.IsKnown(key.answered_by)) continue;
    ResolveAuto(context, key, found->second);
  }
}

constexpr Rule kRules[] = {{"FillFromFlags", {}, FillFromFlags},
                           {"ResolveTransformersAuto",
                            {keys::kZeroOptimizationStage, keys::kElasticityEnabled},
                            ResolveTransformersAuto}};

}  // namespace

std::span<const Rule> AutoValueRules() { return kRules; }

void FillFromFlags(RuleContext& context) {
  const Json betas = context.values.Get(kBetas);
  for (FlagValue& flag : GivenFlags(context.facts.flags, betas)) {
    FillOrAgree(context, std::move(flag));
  }
  const auto warmup = context.facts.flags.warmup_steps;
  if (!warmup || AsksForNothing(context.values, *warmup)) return;
  const bool is_share = *warmup > 0.0 && *warmup < 1.0;
  constexpr double kMostSteps = 1e15;
  if (!(*warmup >= 0 && *warmup <= kMostSteps)) {
    context.issues.Error(kWarmupSteps,
                         "--warmup_steps must be at least 0, not " + ShortDump(Json(*warmup)));
  } else if (const auto steps =
                 WarmupSteps(*warmup, context.facts.total_steps, NoWarmup(context.values))) {
    FillOrAgree(context, {.key = kWarmupSteps,
                          .flag = "--warmup_steps",
                          .value = *steps,
                          .said = *warmup,
                          .source = is_share ? Values::Source::kAuto : Values::Source::kUser});
  } else if (context.facts.steps_come_later) {
    DeferWarmup(context);
  } else {
    context.issues.Error(kWarmupSteps,
                         "--warmup_steps below 1 is a share of all steps: give --steps");
  }
}

void CheckTrainerValues(RuleContext& context) {
  FillFromFlags(context);
  CheckStepTotal(context);
  CheckSampleTotal(context);
}

std::vector<FlagKey> KeysOfFlags(const TrainingFlags& flags) {
  std::vector<FlagKey> keys;
  for (const FlagValue& flag : GivenFlags(flags, Json())) {
    keys.push_back({flag.key, flag.fills, flag.value == false});
  }
  if (flags.warmup_steps) keys.push_back({kWarmupSteps});
  return keys;
}

Json BetasOfFlags(const TrainingFlags& flags, const Json& betas) {
  const bool is_pair =
      betas.is_array() && betas.size() == 2 && betas[0].is_number() && betas[1].is_number();
  const double beta1 = is_pair ? betas[0].get<double>() : kDefaultBeta1;
  const double beta2 = is_pair ? betas[1].get<double>() : kDefaultBeta2;
  return Json::array({flags.adam_beta1.value_or(beta1), flags.adam_beta2.value_or(beta2)});
}

}  // namespace ds::config
