#include "runtime/plan/memory/expert_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/parse_number.h"
#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"

namespace ds::engine {
namespace {

using models::DecoderSpec;
using nlohmann::ordered_json;

// Longer than a layer name needs: the library compiles and matches recursively.
constexpr std::size_t kLongestLayerPattern = 200;

// The values that a key may have for a model; messages show the first one.
struct Truth {
  const char* key;
  std::vector<ordered_json> values;
  const char* of;  // the subject of the values
};

std::vector<Truth> RoutesOf(const DecoderSpec& model) {
  const char* const scale = "the scale of its routes";
  return {{"top_k", {model.experts_per_token}, "its experts of a token"},
          {"score_func", {"softmax"}, "its router's score"},
          {"score_apply", {"post"}, "where its experts' results are weighted"},
          {"combine_impl", {"weighted_sum"}, "how results are added up, the one way that is built"},
          {"route_norm", {model.normalises_routes}, "whether a token's weights add up to 1"},
          {"route_scale", {model.route_scale}, scale},
          {"routed_scaling_factor", {model.route_scale}, scale},
          {"num_expert_groups", {model.route_groups}, "its groups of experts"},
          {"num_limited_groups", {model.topk_route_groups}, "the groups that a token may go to"},
          {"has_shared_experts",
           {model.shared_expert_width > 0},
           "whether all tokens go through an expert, too"}};
}

// DeepSpeed's preset of the family.
std::vector<ordered_json> PresetsOf(const DecoderSpec& model) {
  if (model.model_type == "qwen2_moe") return {"qwen3_moe"};
  for (const char* own : {"mixtral", "qwen3_moe", "deepseek_v2"}) {
    if (model.model_type == own) return {own};
  }
  return {};
}

// transformers stores a layer's experts in two tensors, for any file format. An explicit null for
// the third means that it is part of the first.
std::vector<Truth> NamesOf(const DecoderSpec& model) {
  std::vector<Truth> names{
      {"preset_model", PresetsOf(model), "its preset"},
      {"router_pattern", {model.names.router}, "its router"},
      {"expert_pattern", {model.names.experts}, "its experts"},
      {"expert_w1", {model.names.gate, "gate_up_proj"}, "an expert's gate"},
      {"expert_w2", {model.names.down, "down_proj"}, "an expert's last product"},
      {"expert_w3", {model.names.up, nullptr}, "an expert's gated product"},
      {"shared_experts_pattern", {}, "its shared expert"},
      {"shared_experts_gate_pattern", {}, "its shared expert's gate"}};
  if (model.shared_expert_width == 0) return names;
  names[names.size() - 2].values = {model.names.shared_expert};
  const bool has_gate = model.shared_expert_mix == models::SharedExpertMix::kGated;
  if (has_gate) names.back().values = {model.names.shared_expert_gate};
  return names;
}

// The shown text may end within a character.
Status Contradicts(const char* key, const ordered_json& given, const std::string& truth) {
  const std::string shown = given.dump(/*indent=*/-1, /*indent_char=*/' ', /*ensure_ascii=*/false,
                                       ordered_json::error_handler_t::replace);
  return InvalidArgumentError(fmt::format("expert_parallel.{} is {}, and {}", key, shown, truth));
}

Status CheckTruth(const Truth& truth, const ordered_json& given, const DecoderSpec& model) {
  if (std::find(truth.values.begin(), truth.values.end(), given) != truth.values.end()) {
    return OkStatus();
  }
  if (truth.values.empty()) {
    return Contradicts(
        truth.key, given,
        fmt::format("{} has nothing as {}: leave it out", model.model_type, truth.of));
  }
  return Contradicts(truth.key, given,
                     fmt::format("{} has {} as {}: write that, or leave it out", model.model_type,
                                 truth.values.front().dump(), truth.of));
}

// Checks a key that names a key of config.json.
Status CheckAttribute(const char* key, std::int64_t own, const ordered_json& given,
                      const ordered_json& model_config) {
  const auto found = model_config.find(given.get<std::string>());
  if (found == model_config.end()) {
    return Contradicts(key, given, "the model's config.json has no such key: leave it out");
  }
  if (*found == own) return OkStatus();
  return Contradicts(
      key, given,
      fmt::format("of the model's config.json that is {}, where {} counts: leave it out",
                  found->dump(), own));
}

// Layers without experts are skipped, matched or not, as in DeepSpeed. Accepts the expressions
// that pipeline::PartitionBlocks accepts, which match without backtracking.
Status CheckLayerPattern(const ordered_json& given, const DecoderSpec& model) {
  constexpr const char* kKey = "moe_layer_pattern";
  const auto text = given.get<std::string>();
  if (text.size() > kLongestLayerPattern || text.find('{') != std::string::npos) {
    return Contradicts(kKey, text.substr(0, kLongestLayerPattern),
                       fmt::format("an expression of up to {} characters without {{ is taken",
                                   kLongestLayerPattern));
  }
  std::regex pattern;
  try {
    pattern.assign(text, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    return Contradicts(kKey, given, fmt::format("is no regular expression: {}", error.what()));
  }
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!model.HasExperts(layer)) continue;
    const std::string path = fmt::format("{}.{}.{}.", model.names.base, model.names.layers, layer);
    if (std::regex_match(path + model.names.mlp, pattern)) continue;
    if (std::regex_match(path + "mlp", pattern)) continue;  // transformers' name for all families
    return Contradicts(kKey, given,
                       fmt::format("{}{} has experts, too: leave it out", path, model.names.mlp));
  }
  return OkStatus();
}

// Returns the value of a key that differs from its default, or null.
const ordered_json* FindChanged(const ordered_json& section, const char* key) {
  const auto found = section.find(key);
  if (found == section.end()) return nullptr;
  const config::Setting* const setting = config::FindSetting(std::string("expert_parallel.") + key);
  return setting == nullptr || config::IsDefault(*setting, *found) ? nullptr : &*found;
}

}  // namespace

Status CheckExpertRules(const ordered_json& section, const ordered_json& model_config,
                        const DecoderSpec& model) {
  if (!section.is_object() || section.value("enabled", ordered_json()) != true) return OkStatus();
  std::vector<Truth> truths = RoutesOf(model);
  for (Truth& name : NamesOf(model)) truths.push_back(std::move(name));
  for (Truth& truth : truths) {
    if (model.experts == 0) truth.values.clear();
    const ordered_json* const given = FindChanged(section, truth.key);
    if (given != nullptr) DS_RETURN_IF_ERROR(CheckTruth(truth, *given, model));
  }
  if (const auto* const name = FindChanged(section, "num_experts_attr")) {
    DS_RETURN_IF_ERROR(CheckAttribute("num_experts_attr", model.experts, *name, model_config));
  }
  if (const auto* const name = FindChanged(section, "top_k_attr")) {
    DS_RETURN_IF_ERROR(CheckAttribute("top_k_attr", model.experts_per_token, *name, model_config));
  }
  const ordered_json* const pattern = FindChanged(section, "moe_layer_pattern");
  return pattern == nullptr ? OkStatus() : CheckLayerPattern(*pattern, model);
}

namespace {

Status CheckModelValue(const char* key, std::int64_t said, std::int64_t own,
                       const DecoderSpec& model) {
  if (said == 0 || said == own) return OkStatus();
  return InvalidArgumentError(
      fmt::format("moe.{} is {}, and {} has {}: write that, or leave it out", key, said,
                  model.model_type, own));
}

// Returns the part of the model's routing that a gate does not support, or "".
std::string FindForeignRoute(const DecoderSpec& model) {
  if (model.route_groups != model.topk_route_groups) return "chooses among groups of experts";
  if (model.route_scale != 1.0) return "scales the weights of its experts";
  if (model.experts_per_token == 1 && model.normalises_routes) {
    return "weights the single expert of a token by 1, and such a gate by its probability";
  }
  if (model.experts_per_token > 1 && !model.normalises_routes) {
    return "has weights of a token's experts that do not add up to 1";
  }
  return "";
}

// Replaces the model's own routing by the gate.
Status TakeGate(const config::ExpertGateConfig& gate, DecoderSpec* model) {
  if (const std::string why = FindForeignRoute(*model); !why.empty()) {
    return InvalidArgumentError(
        fmt::format("moe: {} {}, so that a gate with capacity would train another model: leave the "
                    "keys of the gate out (capacity_factor, drop_tokens, ...)",
                    model->model_type, why));
  }
  if (gate.noise == config::ExpertGateNoise::kRSample && model->experts_per_token > 1) {
    return InvalidArgumentError(
        fmt::format("moe.noisy_gate_policy RSample samples the single expert of a token, and {} "
                    "has {} per token: write Jitter or None",
                    model->model_type, model->experts_per_token));
  }
  model->expert_gate = gate;
  return OkStatus();
}

// DeepSpeed mixes one MLP with the experts; a shared expert of the model would be added to them.
Status TakeResidual(DecoderSpec* model) {
  if (model->shared_expert_width > 0) {
    return InvalidArgumentError(fmt::format(
        "moe.use_residual: all tokens go through an expert of {} already ({}): leave the key out, "
        "or take a family without one (mixtral, qwen3_moe)",
        model->model_type, model->names.shared_expert));
  }
  models::AddResidualMlp(model);
  return OkStatus();
}

}  // namespace

Status TakeMoeSection(const config::MoeConfig& section, DecoderSpec* model) {
  DS_RETURN_IF_ERROR(CheckModelValue("num_experts", section.experts, model->experts, *model));
  DS_RETURN_IF_ERROR(
      CheckModelValue("k", section.experts_per_token, model->experts_per_token, *model));
  if (model->experts == 0 && (section.gate || section.residual)) {
    return InvalidArgumentError(
        fmt::format("moe: {} has no experts, which the section describes: leave its keys out",
                    model->model_type));
  }
  if (section.gate) DS_RETURN_IF_ERROR(TakeGate(*section.gate, model));
  return section.residual ? TakeResidual(model) : OkStatus();
}

Status TakeBalance(const std::string& coefficient, DecoderSpec* model) {
  if (coefficient.empty()) return OkStatus();
  if (coefficient == "auto") {
    model->balances_experts = model->has_balance_loss && model->balance_loss_scale != 0.0;
    return OkStatus();
  }
  const auto value = ParseNumber<double>(coefficient);
  if (!value || !std::isfinite(*value) || *value < 0.0) {
    return InvalidArgumentError("--router_aux_loss_coef: " + coefficient +
                                " is neither auto nor a number from 0 on");
  }
  if (*value > 0.0 && !model->has_balance_loss) {
    return InvalidArgumentError("--router_aux_loss_coef: " + model->model_type +
                                " has no balance loss of experts: leave the flag out");
  }
  model->balances_experts = *value > 0.0;
  if (model->has_balance_loss) model->balance_loss_scale = *value;
  return OkStatus();
}

}  // namespace ds::engine
