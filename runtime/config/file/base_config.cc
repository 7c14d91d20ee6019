#include "runtime/config/file/base_config.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/config/check/read_values.h"
#include "runtime/config/file/resolved_config.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/sections/auto_values.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBatch[] = {keys::kTrainBatchSize, keys::kTrainMicroBatchSizePerGpu,
                                       keys::kGradientAccumulationSteps, "elasticity"};
constexpr std::string_view kPrecision[] = {"fp16", "bf16", "torch_autocast"};

std::string TopOf(std::string_view key) { return std::string(key.substr(0, key.find('.'))); }

bool Holds(std::span<const std::string_view> set, std::string_view key) {
  return std::find(set.begin(), set.end(), key) != set.end();
}

void EraseAll(std::span<const std::string_view> set, Json* config) {
  for (const std::string_view key : set) config->erase(std::string(key));
}

// Removes a key, and the sections that are empty without it.
void EraseKey(std::string_view key, Json* config) {
  const std::string name = TopOf(key);
  const auto found = config->find(name);
  if (found == config->end()) return;
  if (name.size() < key.size()) {
    if (!found->is_object()) return;
    EraseKey(key.substr(name.size() + 1), &*found);
    if (!found->empty()) return;
  }
  config->erase(name);
}

// A batch size follows from the two others, so a flag leaves at most one size of the base. An
// "auto" agrees with any flag.
void EraseForFlag(Key key, Json* config) {
  EraseKey(key, config);
  const Json* const batch_size = FindIn(*config, keys::kTrainBatchSize);
  const bool is_number = batch_size != nullptr && *batch_size != "auto";
  if (Holds(kBatch, key) && is_number) EraseKey(keys::kTrainBatchSize, config);
  if (!Holds(kPrecision, TopOf(key))) return;
  for (const std::string_view section : kPrecision) {
    if (section != TopOf(key)) config->erase(std::string(section));
  }
}

// Removes a precision that a flag switches off, and autocast to its dtype.
void EraseSwitchedOff(Key key, Json* config) {
  config->erase(TopOf(key));
  const Json* const dtype = FindIn(*config, keys::kTorchAutocastDtype);
  if (dtype == nullptr || !dtype->is_string()) return;
  const std::string name = dtype->get<std::string>();
  const bool is_bf16 = name.ends_with("bfloat16") || name.ends_with("bf16");
  if (is_bf16 == (key == std::string_view(keys::kBf16Enabled))) {
    config->erase(TopOf(keys::kTorchAutocastDtype));
  }
}

void ReplaceIfThere(std::string_view key, const Json& value, Json* config) {
  if (FindIn(*config, key) != nullptr) PutAt(key, value, config);
}

// With a flag for one of the betas, the other beta is kept.
bool ReplacesOneBeta(Key key, const TrainingFlags& flags, Json* config) {
  const Json* const betas = FindIn(*config, key);
  const bool is_one = flags.adam_beta1.has_value() != flags.adam_beta2.has_value();
  if (key != keys::kOptimizerParamsBetas || betas == nullptr || !is_one) return false;
  PutAt(key, BetasOfFlags(flags, *betas), config);
  return true;
}

Json ListOpenKeys(const BaseConfig& base, const TrainingFlags& flags,
                  const std::set<std::string>& given) {
  Json open = base.keys;
  for (const std::string& name : given) {
    open.erase(name);
    if (Holds(kBatch, name)) EraseAll(kBatch, &open);
    if (Holds(kPrecision, name)) EraseAll(kPrecision, &open);
  }
  return DropFlagKeys(std::move(open), flags);
}

// Builds the tree of a value that is not in a file.
JsonNode NodeOf(const Json& value) {
  JsonNode node;
  node.scalar = value;
  if (value.is_object()) {
    node.scalar = Json::object();
    for (const auto& [name, member] : value.items()) {
      node.members.push_back({.name = name, .position = {}, .node = NodeOf(member)});
    }
  } else if (value.is_array()) {
    node.scalar = Json::array();
    for (const Json& element : value) node.elements.push_back(NodeOf(element));
  }
  return node;
}

}  // namespace

Json DropFlagKeys(Json config, const TrainingFlags& flags) {
  for (const FlagKey& each : KeysOfFlags(flags)) {
    if (each.switches_off) {
      EraseSwitchedOff(each.key, &config);
    } else if (!each.fills) {
      ReplaceIfThere(each.key, "auto", &config);
    } else if (!ReplacesOneBeta(each.key, flags, &config)) {
      EraseForFlag(each.key, &config);
    }
  }
  return config;
}

std::vector<Issue> FindContradictions(const BaseConfig& base, const JobFacts& facts) {
  Values values;
  IssueLog ignored(base.name), issues(base.name);
  ReadValues(NodeOf(base.keys), &values, &ignored);
  RuleContext context{values, issues, facts};
  CheckTrainerValues(context);
  return issues.errors();
}

Json PutAutosBack(Json config, const std::vector<std::string>& derived) {
  for (const std::string& key : derived) ReplaceIfThere(key, "auto", &config);
  return config;
}

void AddBaseConfig(const BaseConfig& base, const TrainingFlags& flags, Values* values,
                   IssueLog* issues, Json* given) {
  std::set<std::string> names;
  // Rejected keys count as given: they are reported already.
  for (const auto& [key, entry] : values->entries()) names.insert(TopOf(key));
  for (const auto& [key, position] : values->autos()) names.insert(TopOf(key));
  const Json added = ReadValues(NodeOf(ListOpenKeys(base, flags, names)), values, issues);
  for (const auto& [name, value] : added.items()) (*given)[name] = value;
}

}  // namespace ds::config
