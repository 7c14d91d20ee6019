#include "runtime/config/file/check_config.h"

#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/read_values.h"
#include "runtime/config/check/values.h"
#include "runtime/config/file/base_config.h"
#include "runtime/config/file/resolved_config.h"
#include "runtime/config/file/section_order.h"
#include "runtime/config/sections/sections.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// A file name is arbitrary bytes, but reports must be UTF-8.
std::string Printable(std::string_view name) {
  const std::string quoted = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

// Adds the values from outside the file (Entry::is_forwarded) to the given keys.
void AddCarriedValues(const Values& values, CheckResult* result) {
  for (const auto& [key, entry] : values.entries()) {
    if (!entry.is_forwarded) continue;
    PutAt(key, entry.value, &result->given);
    if (!entry.given) result->derived.push_back(key);
  }
}

// Kinds of JSON files that users mistake for a ds_config, by a key of their own.
struct OtherFile {
  std::string_view key;
  std::string_view description;
};

constexpr OtherFile kOtherFiles[] = {
    {"model_type", "a model's config.json, which --model takes with its folder"},
    {"architectures", "a model's config.json, which --model takes with its folder"},
    {"peft_type", "an adapter's adapter_config.json, which --lora_adapter takes with its folder"},
    {"added_tokens", "a tokenizer.json, which --tokenizer takes with its folder"},
    {"tokenizer_class", "a tokenizer_config.json, which --tokenizer takes with its folder"},
    {"output_dir",
     "arguments of transformers' Trainer, which --from_hf_trainer takes and `dsrun "
     "translate` converts"},
};

// Describes the kind of file if it is another kind than a ds_config; "" otherwise.
std::string_view DescribeOtherFile(const JsonNode& root) {
  for (const OtherFile& file : kOtherFiles) {
    for (const JsonMember& member : root.members) {
      if (member.name == file.key) return file.description;
    }
  }
  return "";
}

Json KeysAndMessages(const std::vector<Issue>& issues) {
  Json list = Json::array();
  for (const Issue& issue : issues)
    list.push_back({{"key", issue.key}, {"message", issue.message}});
  return list;
}

}  // namespace

CheckResult CheckConfig(std::string_view text, std::string_view file_name, const JobFacts& facts) {
  DS_CHECK(facts.world_size >= 1);
  IssueLog issues(Printable(file_name));
  if (facts.is_generated) issues.HidePositions();
  IssueLog base_issues(facts.base ? facts.base->name : "");
  CheckResult result;
  const JsonReading reading = ReadPositionedJson(text);
  for (const JsonProblem& problem : reading.problems) {
    issues.Error("", problem.message, problem.position);
  }
  if (reading.complete && !reading.root.scalar.is_object()) {
    issues.Error("", "the config must be an object: { ... }", reading.root.position);
  } else if (const std::string_view other = DescribeOtherFile(reading.root); !other.empty()) {
    issues.Error("", "this is no ds_config but " + std::string(other), reading.root.position);
  } else if (reading.complete) {
    Values values;
    result.given =
        ReadValues(reading.root, &values, &issues,
                   facts.ignore_unknown_keys ? UnknownKeys::kIgnored : UnknownKeys::kRefused);
    if (facts.base) AddBaseConfig(*facts.base, facts.flags, &values, &base_issues, &result.given);
    RuleContext context{values, issues, facts};
    ApplyRules(context);
    result.resolved = MakeResolvedConfig(values, result.given);
    result.origins = ListOrigins(values);
    AddCarriedValues(values, &result);
    for (const auto& [key, position] : values.autos()) result.autos.push_back(key);
    if (issues.errors().empty() && base_issues.errors().empty()) {
      result.config = FillConfig(values);
      result.data_efficiency = ReadDataEfficiency(values);
      const auto end = facts.total_steps ? FindEarlyEnd(values, *facts.total_steps) : std::nullopt;
      if (end) result.early_end = end->message;
    }
  }
  result.errors = issues.errors();
  result.warnings = issues.warnings();
  for (Issue& issue : base_issues.errors()) result.errors.push_back(std::move(issue));
  for (Issue& issue : base_issues.warnings()) result.warnings.push_back(std::move(issue));
  result.ok = result.errors.empty();
  return result;
}

CheckResult CheckConfig(std::string_view text, std::string_view file_name, int world_size) {
  return CheckConfig(text, file_name, JobFacts{.world_size = world_size});
}

std::string ToDsConfigJson(const CheckResult& result) {
  DS_CHECK(result.ok);
  return result.given.dump();
}

Json ToResolvedConfigJson(const CheckResult& result) {
  Json json = result.resolved;
  json["origins"] = result.origins;
  return json;
}

Json ToErrorReport(const CheckResult& result) {
  return {{"ok", result.ok},
          {"errors", KeysAndMessages(result.errors)},
          {"warnings", KeysAndMessages(result.warnings)}};
}

}  // namespace ds::config
