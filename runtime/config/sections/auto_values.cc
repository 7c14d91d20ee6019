#include "runtime/config/sections/auto_values.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// The defaults of transformers' TrainingArguments that are not DeepSpeed's own.
constexpr std::int64_t kDefaultMicroBatch = 8;
constexpr double kDefaultLearningRate = 5e-5;
constexpr double kDefaultBeta1 = 0.9;
constexpr double kDefaultBeta2 = 0.999;

constexpr Key kTrainBatch = keys::kTrainBatchSize;
constexpr Key kMicroBatch = keys::kTrainMicroBatchSizePerGpu;
constexpr Key kLearningRate = keys::kOptimizerParamsLr;
constexpr Key kWarmupEnd = keys::kSchedulerParamsWarmupMaxLr;
constexpr Key kWarmupSteps = keys::kSchedulerParamsWarmupNumSteps;
constexpr Key kTotalSteps = keys::kSchedulerParamsTotalNumSteps;
constexpr Key kReduceBucket = keys::kZeroOptimizationReduceBucketSize;
constexpr Key kPrefetchBucket = keys::kZeroOptimizationStage3PrefetchBucketSize;
constexpr Key kPersistence = keys::kZeroOptimizationStage3ParamPersistenceThreshold;

// FlagValue is what a flag says about a key.
struct FlagValue {
  Key key;
  std::string flag;
  Json value;
  bool fills = true;  // false: it only has to agree, as another rule derives the key
};

// Scheduler steps of a warm-up given as steps or as a share of all steps, as transformers counts.
std::optional<std::int64_t> WarmupSteps(double given, std::optional<std::int64_t> total) {
  if (given >= 1) return static_cast<std::int64_t>(given);
  if (given == 0) return 1;  // DeepSpeed wants a positive number
  if (!total) return std::nullopt;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(given * static_cast<double>(*total))));
}

std::vector<FlagValue> GivenFlags(const TrainingFlags& flags) {
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
    given.push_back({keys::kOptimizerParamsBetas, "--adam_beta1 and --adam_beta2",
                     Json::array({flags.adam_beta1.value_or(kDefaultBeta1),
                                  flags.adam_beta2.value_or(kDefaultBeta2)})});
  }
  add(keys::kOptimizerParamsEps, "--adam_epsilon", flags.adam_epsilon);
  add(keys::kOptimizerParamsWeightDecay, "--weight_decay", flags.weight_decay);
  add(keys::kGradientClipping, "--max_grad_norm", flags.max_grad_norm);
  add(keys::kTensorParallelAutotpSize, "--tp", flags.tp);
  add(keys::kSequenceParallelSize, "--sp", flags.sp);
  add(keys::kPipelineStages, "--pp", flags.pp);
  add(keys::kExpertParallelAutoepSize, "--ep", flags.ep);
  if (flags.ep) given.push_back({keys::kExpertParallelEnabled, "--ep", true});
  if (flags.fp16) given.push_back({keys::kFp16Enabled, "--fp16", true});
  if (flags.bf16) given.push_back({keys::kBf16Enabled, "--bf16", true});
  return given;
}

void FillOrAgree(RuleContext& context, FlagValue flag) {
  Values& values = context.values;
  if (values.IsBroken(flag.key) || (!flag.fills && !values.IsGiven(flag.key))) return;
  if (const auto problem = CheckValue(*FindSetting(flag.key), &flag.value)) {
    context.issues.Error(flag.key, flag.flag + " " + *problem);
  } else if (!values.IsGiven(flag.key) || values.Get(flag.key) == "auto") {
    values.Resolve(flag.key, flag.value, flag.flag, Values::Source::kUser);
  } else if (values.Get(flag.key) != flag.value) {
    context.issues.Error(flag.key,
                         std::string(flag.key) + " is " + ShortDump(values.Get(flag.key)) +
                             " here, but " + flag.flag + " says " + ShortDump(flag.value) +
                             ": make them agree, or write \"auto\" here",
                         values.PositionOf(flag.key));
  }
}

// A share of steps that only the run will know.
void LeaveWarmupToTheRun(RuleContext& context) {
  Values& values = context.values;
  if (values.IsBroken(kWarmupSteps)) return;
  if (values.IsGiven(kWarmupSteps)) {
    context.issues.Error(kWarmupSteps,
                         std::string(kWarmupSteps) + " is " + ShortDump(values.Get(kWarmupSteps)) +
                             " here, but --warmup_steps says a share of all steps: leave one out",
                         values.PositionOf(kWarmupSteps));
    return;
  }
  values.Resolve(kWarmupSteps, "auto",
                 "--warmup_steps: a share of the steps of the run, known when it starts",
                 Values::Source::kUser);
}

// What an "auto" was found to stand for. Nothing at all leaves the key to the other rules.
struct Answer {
  Json value;
  std::string why;
  std::string problem;  // why it cannot be resolved, and what to do
};

Answer MicroBatch(const RuleContext& context) {
  const Values& values = context.values;
  if (values.IsGiven(kTrainBatch) || values.Get(keys::kElasticityEnabled) == true) return {};
  return {kDefaultMicroBatch, "as transformers has it without --per_device_train_batch_size", ""};
}

Answer LearningRate(const RuleContext&) {
  return {kDefaultLearningRate, "as transformers has it without --learning_rate", ""};
}

Answer Warmup(const RuleContext&) {
  return {1, "no warm-up, as transformers has it without --warmup_steps", ""};
}

Answer TotalSteps(const RuleContext& context) {
  if (context.facts.steps_come_later && !context.facts.total_steps) {
    return {"auto", "the steps of the run, known when it starts (or by --steps)", ""};
  }
  if (!context.facts.total_steps) return {.problem = "give the number of steps by --steps"};
  return {*context.facts.total_steps, "the steps of this run", ""};
}

// `rule` makes the value from the hidden size and says so.
template <typename Rule>
Answer FromHiddenSize(const RuleContext& context, Key key, const Rule& rule) {
  const auto& model = context.facts.model;
  if (!model) return {DefaultValue(*FindSetting(key)), "the default, as no model is given", ""};
  if (!model->hidden_size) {
    return {.problem =
                "the config.json of " + model->name + " tells no hidden size; give a number"};
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
  Key answered_by = key;      // the key that gets the answer, unless it has one
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

// A flag fills its key where the file leaves it open (absent or "auto"), and contradicting the file
// is an error.
void FlagsFillOrAgree(RuleContext& context) {
  for (FlagValue& flag : GivenFlags(context.facts.flags)) FillOrAgree(context, std::move(flag));
  const auto warmup = context.facts.flags.warmup_steps;
  if (!warmup) return;
  constexpr double kMostSteps = 1e15;
  if (!(*warmup >= 0 && *warmup <= kMostSteps)) {
    context.issues.Error(kWarmupSteps,
                         "--warmup_steps must be at least 0, not " + ShortDump(Json(*warmup)));
  } else if (const auto steps = WarmupSteps(*warmup, context.facts.total_steps)) {
    FillOrAgree(context, {kWarmupSteps, "--warmup_steps", *steps});
  } else if (context.facts.steps_come_later) {
    LeaveWarmupToTheRun(context);
  } else {
    context.issues.Error(kWarmupSteps,
                         "--warmup_steps below 1 is a share of all steps: give --steps");
  }
}

// The keys whose "auto" needs more than the file.
void AutoFollowsTransformers(RuleContext& context) {
  for (const AutoKey& key : kAutoKeys) {
    const auto& autos = context.values.autos();
    const auto found = autos.find(key.key);
    if (found == autos.end() || context.values.IsGiven(key.answered_by)) continue;
    ResolveAuto(context, key, found->second);
  }
}

constexpr Rule kRules[] = {{"FlagsFillOrAgree", {}, FlagsFillOrAgree},
                           {"AutoFollowsTransformers",
                            {keys::kZeroOptimizationStage, keys::kElasticityEnabled},
                            AutoFollowsTransformers}};

}  // namespace

std::span<const Rule> AutoValueRules() { return kRules; }

std::vector<Key> KeysOfFlags(const TrainingFlags& flags) {
  std::vector<Key> keys;
  for (const FlagValue& flag : GivenFlags(flags)) keys.push_back(flag.key);
  if (flags.warmup_steps) keys.push_back(kWarmupSteps);
  return keys;
}

}  // namespace ds::config
