#include "runtime/config/file/section_order.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/sections/auto_values.h"
#include "runtime/config/sections/batch_section.h"
#include "runtime/config/sections/elasticity_section.h"
#include "runtime/config/sections/optimizer_section.h"
#include "runtime/config/sections/parallel_section.h"
#include "runtime/config/sections/sections.h"
#include "runtime/config/sections/zenflow_section.h"
#include "runtime/config/sections/zero_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// Rules for every key: the effect of its state in the registry (keys/setting.h) on a value.

// Returns the remedy for giving `value`, or "" if its feature is built.
std::string DescribeRemedy(const Setting& setting, const Json& value) {
  // A switch is reported for all keys of its feature.
  const bool answers = setting.state == SettingState::kRefused && setting.switch_key.empty();
  if (!answers || IsInList(setting.harmless_json, value)) return "";
  const std::string default_value(setting.default_json);
  return setting.required ? "remove it" : "remove it or leave it at " + default_value;
}

// Converts the value of a renamed key to its current name.
Json CarriedValue(const Setting& setting, const Json& value) {
  const Json carries = Json::parse(setting.carries_json);
  const auto found = carries.find(value.dump());
  return found == carries.end() ? value : *found;
}

// Moves the values of deprecated names to the new names, which may then not be given as well.
void CarryDeprecatedValues(RuleContext& context) {
  Values& values = context.values;
  std::vector<std::pair<std::string, Values::Entry>> renamed;
  for (const auto& [key, entry] : values.entries()) {
    const bool applies = entry.given && !entry.broken &&
                         entry.setting->state == SettingState::kRenamed &&
                         !IsDefault(*entry.setting, entry.value);
    if (applies) renamed.emplace_back(key, entry);
  }
  for (auto& [key, entry] : renamed) {
    const std::string new_key(entry.setting->renamed_to);
    if (values.IsGiven(Key(new_key)) || values.IsBroken(Key(new_key))) {
      context.issues.Error(key, key + " is the old name of " + new_key + ": give only the new one",
                           entry.position);
      continue;
    }
    const Json value = CarriedValue(*entry.setting, entry.value);
    context.issues.Warning(
        key, key + " is deprecated: write " + new_key + ": " + value.dump() + " instead",
        entry.position);
    values.Carry(Key(new_key), value, entry);
  }
}

// Rejects keys that request a feature that is not built.
void RefuseUnbuiltFeatures(RuleContext& context) {
  for (const auto& [key, entry] : context.values.entries()) {
    if (!entry.given || entry.broken || IsDefault(*entry.setting, entry.value)) continue;
    const std::string advice = DescribeRemedy(*entry.setting, entry.value);
    if (advice.empty()) continue;
    std::string message = key;
    message += " " + ShortDump(entry.value) + " is not supported yet (";
    message += std::string(entry.setting->reason) + "): " + advice;
    context.issues.Error(key, message, entry.position);
  }
}

// Returns true if a feature's switch is off. A degree of 1 splits nothing, like its default.
bool IsOff(const Setting& setting, const Json& value) {
  const bool is_degree =
      setting.key == keys::kTensorParallelAutotpSize || setting.key == keys::kPipelineStages;
  return IsDefault(setting, value) || (is_degree && value == 1);
}

// Warns about keys that have no effect here.
void ReportKeysWithoutEffect(RuleContext& context) {
  const Values& values = context.values;
  for (const auto& [key, entry] : values.entries()) {
    if (!entry.given || entry.broken || IsDefault(*entry.setting, entry.value)) continue;
    const Setting& setting = *entry.setting;
    if (setting.state == SettingState::kAccepted) {
      context.issues.Warning(key, key + " has no effect: " + std::string(setting.reason),
                             entry.position);
    } else if (!setting.switch_key.empty() &&
               IsOff(*FindSetting(setting.switch_key), values.Get(Key(setting.switch_key)))) {
      context.issues.Warning(key,
                             key + " has no effect while " + std::string(setting.switch_key) +
                                 " is " + values.Get(Key(setting.switch_key)).dump(),
                             entry.position);
    }
  }
}

// Runs before any other rule: moves the values of deprecated names to the new names.
constexpr Rule kRenamedKeyRules[] = {{"CarryDeprecatedValues", {}, CarryDeprecatedValues}};
// Runs once flags and "auto" are resolved: rejects features that are not built, and reports keys
// without effect.
constexpr Rule kKeyStateRules[] = {{"RefuseUnbuiltFeatures", {}, RefuseUnbuiltFeatures},
                                   {"ReportKeysWithoutEffect", {}, ReportKeysWithoutEffect}};

std::span<const Rule> RenamedKeyRules() { return kRenamedKeyRules; }
std::span<const Rule> KeyStateRules() { return kKeyStateRules; }

constexpr Key kPartitions = keys::kActivationCheckpointingPartitionActivations;
constexpr Key kBuffers = keys::kActivationCheckpointingContiguousMemoryOptimization;
constexpr Key kParts = keys::kActivationCheckpointingNumberCheckpoints;

// Warns about keys of the section that have no effect in this job.
void ReportIdleCheckpointing(RuleContext& context) {
  if (context.IsChanged(kParts) && !context.IsOn(kBuffers)) {
    context.issues.Warning(kParts,
                           std::string(kParts) + " has no effect while " + std::string(kBuffers) +
                               " is false: it is the size of that buffer, and not how many layers "
                               "are recomputed",
                           context.values.PositionOf(kParts));
  }
  if (!context.IsOn(kPartitions) || ReadParallel(context.values).tensor > 1) return;
  context.issues.Warning(kPartitions,
                         std::string(kPartitions) +
                             " has no effect without tensor ranks, over which it partitions the "
                             "inputs of recomputed layers",
                         context.values.PositionOf(kPartitions));
}

// Checks the buffer's parts as DeepSpeed does.
void CheckPartitionBuffer(RuleContext& context) {
  if (!context.IsOn(kBuffers)) return;
  if (!context.IsOn(kPartitions)) {
    context.Refuse(kBuffers, "needs activation_checkpointing.partition_activations");
  }
  if (context.values.Get(kParts).is_null()) {
    context.Refuse(
        kBuffers,
        "needs activation_checkpointing.number_checkpoints, the layers that are computed "
        "again");
  }
  if (ReadParallel(context.values).tensor > 1) return;
  context.issues.Warning(
      kBuffers,
      std::string(kBuffers) +
          " has no effect without tensor ranks: the input of a layer is kept without a copy",
      context.values.PositionOf(kBuffers));
}

constexpr Rule kActivationRules[] = {
    {"ReportIdleCheckpointing", {kPartitions, kBuffers, kParts}, ReportIdleCheckpointing},
    {"CheckPartitionBuffer", {kPartitions, kBuffers, kParts}, CheckPartitionBuffer}};
std::span<const Rule> ActivationRules() { return kActivationRules; }

// Returns true if a key of the section differs from its default.
bool AsksForCheckpointing(const Values& values) {
  const Key section("activation_checkpointing");
  return std::any_of(values.entries().begin(), values.entries().end(), [&](const auto& named) {
    const auto& [key, entry] = named;
    return section.Has(key) && entry.given && !IsDefault(*entry.setting, entry.value);
  });
}

void FillActivation(const Values& values, DsConfig* config) {
  const bool buffers = values.Get(kBuffers) == true && ReadParallel(values).tensor > 1;
  config->activation_checkpointing = {
      .asked_for = AsksForCheckpointing(values),
      .partition_activations = values.Get(kPartitions),
      .buffered_parts = buffers ? std::optional<std::int64_t>(values.Get(kParts)) : std::nullopt,
      .cpu_checkpointing = values.Get(keys::kActivationCheckpointingCpuCheckpointing),
      .synchronize_checkpoint_boundary =
          values.Get(keys::kActivationCheckpointingSynchronizeCheckpointBoundary),
      .profile = values.Get(keys::kActivationCheckpointingProfile)};
}

// Reads "num_experts", in DeepSpeed's guides a number, or a list with one for all layers.
std::int64_t ReadExpertCount(const Json& given) {
  const Json& number = given.is_array() && given.size() == 1 ? given[0] : given;
  return number.is_number_integer() ? number.get<std::int64_t>() : 0;
}

void CheckExpertCount(RuleContext& context) {
  const Json given = context.values.Get(keys::kMoeNumExperts);
  if (given.is_null() || ReadExpertCount(given) > 0) return;
  context.Refuse(keys::kMoeNumExperts, "must be the model's number of experts, not " +
                                           ShortDump(given) + ": all of its layers have as many");
}

// DeepSpeed's examples use this name, its layer uses the other.
void DeriveUseResidual(RuleContext& context) {
  Values& values = context.values;
  constexpr Key kType = keys::kMoeMlpType, kSwitch = keys::kMoeUseResidual;
  if (!context.IsOn(keys::kMoeEnabled) || !values.IsGiven(kType)) return;
  const bool is_residual = values.Get(kType) == "residual";
  if (values.IsGiven(kSwitch) && values.Get(kSwitch).is_boolean() &&
      values.Get(kSwitch) != is_residual) {
    context.Refuse(kType, std::string(is_residual ? "is residual, and " : "is standard, and ") +
                              std::string(kSwitch) + " is " + ShortDump(values.Get(kSwitch)) +
                              ": they are two names of the same, so give one");
    return;
  }
  if (is_residual) values.Derive(kSwitch, true, "derived from " + std::string(kType));
}

// Once any key of the gate is given, the keys that are not given have DeepSpeed's defaults.
constexpr Key kGateKeys[] = {keys::kMoeCapacityFactor,       keys::kMoeEvalCapacityFactor,
                             keys::kMoeMinCapacity,          keys::kMoeDropTokens,
                             keys::kMoeNoisyGatePolicy,      keys::kMoeUseRts,
                             keys::kMoeTop22ndExpertSampling};

void FillExpertGate(const Values& values, DsConfig* config) {
  if (values.Get(keys::kMoeEnabled) != true) return;
  config->moe.experts = ReadExpertCount(values.Get(keys::kMoeNumExperts));
  const auto fill = [&](Key key, auto* value) {
    if (const Json given = values.Get(key); !given.is_null()) given.get_to(*value);
  };
  fill(keys::kMoeK, &config->moe.experts_per_token);
  fill(keys::kMoeUseResidual, &config->moe.residual);
  const bool is_asked = std::any_of(std::begin(kGateKeys), std::end(kGateKeys),
                                    [&](Key key) { return !values.Get(key).is_null(); });
  if (!is_asked) return;
  ExpertGateConfig& gate = config->moe.gate.emplace();
  fill(keys::kMoeCapacityFactor, &gate.capacity_factor);
  fill(keys::kMoeEvalCapacityFactor, &gate.evaluation_capacity_factor);
  fill(keys::kMoeMinCapacity, &gate.min_capacity);
  fill(keys::kMoeDropTokens, &gate.drops_tokens);
  fill(keys::kMoeUseRts, &gate.selects_at_random);
  fill(keys::kMoeTop22ndExpertSampling, &gate.draws_second);
  const Json noise = values.Get(keys::kMoeNoisyGatePolicy);
  if (noise == "Jitter") gate.noise = ExpertGateNoise::kJitter;
  if (noise == "RSample") gate.noise = ExpertGateNoise::kRSample;
}

constexpr Rule kExpertGateRules[] = {
    {"CheckExpertCount", {keys::kMoeNumExperts}, CheckExpertCount},
    {"DeriveUseResidual", {keys::kMoeMlpType, keys::kMoeUseResidual}, DeriveUseResidual}};
std::span<const Rule> ExpertGateRules() { return kExpertGateRules; }
// Omits the section where it is unused, since DeepSpeed does not know it.
bool ExpertGateOmitsKey(const Values& values, Key key) {
  return Key("moe").Has(key) && values.Get(keys::kMoeEnabled) != true;
}

void FillMonitors(const Values& values, DsConfig* config) {
  config->csv_monitor = {.enabled = values.Get(keys::kCsvMonitorEnabled),
                         .output_path = values.Get(keys::kCsvMonitorOutputPath),
                         .job_name = values.Get(keys::kCsvMonitorJobName)};
  config->tensorboard = {.enabled = values.Get(keys::kTensorboardEnabled),
                         .output_path = values.Get(keys::kTensorboardOutputPath),
                         .job_name = values.Get(keys::kTensorboardJobName)};
}

struct Section {
  std::span<const Rule> (*rules)();
  void (*fill)(const Values& values, DsConfig* config) = nullptr;  // null: nothing to fill in
  bool (*leaves_out)(const Values& values, Key key) = nullptr;     // null: no key
};

std::span<const Rule> NoRules() { return {}; }

constexpr Section kSections[] = {
    {RenamedKeyRules},
    {AutoValueRules},
    {KeyStateRules},
    {ParallelRules, FillParallel},                   // says how many ranks share the batch
    {ElasticityRules, nullptr, ElasticityOmitsKey},  // decides the batch sizes when enabled
    {BatchRules, FillBatch},
    {OptimizerRules, FillOptimizer, OptimizerOmitsKey},
    {PrecisionRules, FillPrecision, PrecisionOmitsKey},  // reads the chosen optimizer
    {SchedulerRules, FillScheduler, SchedulerOmitsKey},  // replaces the optimizer's betas
    {ScheduleValueRules},
    {ZeroRules, FillZero, ZeroOmitsKey},
    {ZenFlowRules, FillZenFlow, ZenFlowOmitsKey},
    {OffloadRules, FillOffload},  // extends the result of FillZero
    {ActivationRules, FillActivation},
    {ExpertGateRules, FillExpertGate, ExpertGateOmitsKey},
    {DataEfficiencyRules, nullptr, DataEfficiencyOmitsKey},
    {NoRules, FillMonitors},
    {NotBuiltRules},
};

}  // namespace

std::vector<Rule> AllRules() {
  std::vector<Rule> all;
  for (const Section& section : kSections) {
    const std::span<const Rule> rules = section.rules();
    all.insert(all.end(), rules.begin(), rules.end());
  }
  return all;
}

void ApplyRules(RuleContext& context) {
  for (const Rule& rule : AllRules()) {
    const bool readable = std::none_of(rule.keys.begin(), rule.keys.end(), [&](Key key) {
      return !key.empty() && context.values.IsBroken(key);
    });
    if (readable) rule.apply(context);
  }
}

bool OmitsKey(const Values& values, Key key) {
  return std::any_of(std::begin(kSections), std::end(kSections), [&](const Section& section) {
    return section.leaves_out != nullptr && section.leaves_out(values, key);
  });
}

DsConfig FillConfig(const Values& values) {
  DsConfig config;
  for (const Section& section : kSections) {
    if (section.fill != nullptr) section.fill(values, &config);
  }
  return config;
}

}  // namespace ds::config
