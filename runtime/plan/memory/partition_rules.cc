#include "runtime/plan/memory/partition_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/model/tensor_plan.h"

namespace ds::engine {
namespace {

using nlohmann::ordered_json;

constexpr const char* kKey = "tensor_parallel.partition_config";
// Longer than weight names need: the library compiles and matches recursively.
constexpr std::size_t kLongestExpression = 200;

struct Rule {
  std::vector<std::regex> patterns;
  std::string type;

  // Matches like Python's re.match: anchored at the first letter only.
  bool Matches(const std::string& name) const {
    return std::any_of(patterns.begin(), patterns.end(), [&](const std::regex& pattern) {
      return std::regex_search(name, pattern, std::regex_constants::match_continuous);
    });
  }
};

// Accepts the expressions that pipeline::PartitionBlocks accepts, which match without backtracking.
StatusOr<std::regex> ParsePattern(const ordered_json& pattern) {
  const std::string text = pattern.is_string() ? pattern.get<std::string>() : "";
  const std::string named = fmt::format("{}.layer_specs[].patterns: {}", kKey, pattern.dump());
  if (text.empty() || text.size() > kLongestExpression || text.find('{') != std::string::npos) {
    return InvalidArgumentError(
        fmt::format("{} is not taken: write a regular expression of up to {} characters without {{",
                    named.substr(0, 2 * kLongestExpression), kLongestExpression));
  }
  try {
    return std::regex(text, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    return InvalidArgumentError(
        fmt::format("{} is no regular expression that is taken: {}", named, error.what()));
  }
}

bool IsForModel(const ordered_json& spec, const models::DecoderSpec& model) {
  const auto types = spec.find("model_types");
  if (types == spec.end() || !types->is_array() || types->empty()) return true;
  return std::find(types->begin(), types->end(), model.model_type) != types->end();
}

StatusOr<std::vector<Rule>> ReadRules(const ordered_json& rules, const models::DecoderSpec& model) {
  std::vector<Rule> read;
  for (const ordered_json& spec : rules.value("layer_specs", ordered_json::array())) {
    if (!IsForModel(spec, model)) continue;
    Rule rule{.patterns = {}, .type = spec.value("partition_type", "column")};
    const auto dimension = spec.find("partition_dim");
    const std::int64_t of_type = rule.type == "row" ? 1 : 0;
    if (dimension != spec.end() && dimension->is_number_integer() && rule.type != "skip" &&
        *dimension != of_type) {
      return InvalidArgumentError(
          fmt::format("{}.layer_specs[].partition_dim is {}: a weight [out, in] is sharded as "
                      "\"{}\" along dimension {}; write that, or leave it out",
                      kKey, dimension->dump(), rule.type, of_type));
    }
    for (const ordered_json& pattern : spec.value("patterns", ordered_json::array())) {
      DS_ASSIGN_OR_RETURN(std::regex parsed, ParsePattern(pattern));
      rule.patterns.push_back(std::move(parsed));
    }
    read.push_back(std::move(rule));
  }
  return read;
}

// Returns how the plan shards the weight, in the rules' terms.
std::string TypeOf(const models::TensorPlan& plan, const models::DecoderSpec& model,
                   const std::string& weight) {
  const auto slice = plan.SliceOf(weight);
  if (!slice) return "skip";
  const std::string table = std::string(".") + model.names.tokens + ".weight";
  const bool is_table =
      weight.ends_with(table) || weight == std::string(model.names.head) + ".weight";
  const bool in_out = model.weights_are_in_out && !is_table;
  return (slice->dimension == 0) != in_out ? "column" : "row";
}

}  // namespace

Status CheckPartitionRules(const ordered_json& rules, const models::DecoderSpec& model, int parts) {
  if (!rules.is_object() || parts == 1) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::vector<Rule> read, ReadRules(rules, model));
  DS_ASSIGN_OR_RETURN(const auto plan, models::TensorPlan::Create(model, 0, parts));
  const bool defaults = rules.value("use_default_specs", true);
  const bool strict = !defaults && rules.value("strict_mode", false);
  const std::vector<models::BlockSizes> blocks = models::ListBlockSizes(model);
  for (std::size_t i = 1; i < blocks.size(); ++i) {  // after the tables, which have no rules
    for (const models::ParameterSize& parameter : blocks[i].parameters) {
      if (!parameter.is_matrix) continue;
      const std::string& prefix = blocks[i].prefix;
      const std::string weight = prefix.empty() ? parameter.name : prefix + "." + parameter.name;
      const std::string module = weight.substr(0, weight.rfind('.'));
      const auto rule = std::find_if(read.begin(), read.end(), [&](const Rule& candidate) {
        return candidate.Matches(weight) || candidate.Matches(module);
      });
      if (rule == read.end() && strict) {
        return InvalidArgumentError(
            fmt::format("{}.strict_mode: no rule of layer_specs matches {}", kKey, module));
      }
      // The sharding of the head only affects memory, independent of the layers.
      if (rule == read.end() && (defaults || i + 1 == blocks.size())) continue;
      const std::string wanted = rule == read.end() ? "skip" : rule->type;
      const std::string own = TypeOf(plan, model, weight);
      if (wanted == own) continue;
      return InvalidArgumentError(
          fmt::format("{}: {} is \"{}\" by {}, and can only be sharded as \"{}\": fix the rule, or "
                      "leave it out",
                      kKey, module, wanted,
                      rule == read.end() ? "no rule of layer_specs" : "layer_specs", own));
    }
  }
  return OkStatus();
}

}  // namespace ds::engine
