#include "runtime/config/check_config.h"

#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/read_values.h"
#include "runtime/config/check/values.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/section_order.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// A file name is bytes; what the reports hold must be UTF-8.
std::string Printable(std::string_view name) {
  const std::string quoted = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

// Every key that stands for itself (a placeholder does not), then the given ones that fill one in.
Json ResolvedJson(const Values& values) {
  // Filled as the vector of pairs it is: looking each name up first would cost milliseconds.
  Json::object_t resolved;
  const auto add = [&](const std::string& key, Json value, std::string origin) {
    Json entry = Json::object({{"value", std::move(value)}, {"origin", std::move(origin)}});
    resolved.push_back({key, std::move(entry)});
  };
  for (const Setting& setting : AllSettings()) {
    const bool is_value = setting.state != SettingState::kSection &&
                          setting.state != SettingState::kRenamed &&
                          setting.key.find_first_of("<[") == std::string_view::npos;
    const bool has_value = !setting.required || !values.Get(Key(setting.key)).is_null();
    if (is_value && has_value) {
      add(std::string(setting.key), values.Get(Key(setting.key)),
          values.OriginOf(Key(setting.key)));
    }
  }
  for (const auto& [key, entry] : values.entries()) {
    if (FindSetting(key) == nullptr && !entry.broken) add(key, entry.value, entry.origin);
  }
  return resolved;
}

// Puts what was resolved from outside the file into its plain form.
void AddWhatTravels(const Values& values, Json* plain) {
  for (const auto& [key, entry] : values.entries()) {
    if (!entry.travels) continue;
    Json* place = plain;
    std::string_view rest = key;
    for (std::size_t dot; (dot = rest.find('.')) != std::string_view::npos;) {
      place = &(*place)[std::string(rest.substr(0, dot))];
      rest.remove_prefix(dot + 1);
    }
    (*place)[std::string(rest)] = entry.value;
  }
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
  CheckResult result;
  const JsonReading reading = ReadPositionedJson(text);
  for (const JsonProblem& problem : reading.problems) {
    issues.Error("", problem.message, problem.position);
  }
  if (reading.complete && !reading.root.scalar.is_object()) {
    issues.Error("", "the config must be an object: { ... }", reading.root.position);
  } else if (reading.complete) {
    Values values;
    result.given = ReadValues(reading.root, &values, &issues);
    RuleContext context{values, issues, facts};
    ApplyRules(context);
    result.resolved = ResolvedJson(values);
    AddWhatTravels(values, &result.given);
    for (const auto& [key, position] : values.autos()) result.autos.push_back(key);
    if (issues.errors().empty()) result.config = FillConfig(values);
  }
  result.errors = issues.errors();
  result.warnings = issues.warnings();
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

Json ToCheckReport(const CheckResult& result) {
  return {{"ok", result.ok},
          {"errors", KeysAndMessages(result.errors)},
          {"warnings", KeysAndMessages(result.warnings)},
          {"config", result.resolved}};
}

}  // namespace ds::config
