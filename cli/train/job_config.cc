#include "cli/train/job_config.h"

#include <utility>

#include "cli/train/schedule_flags.h"
#include "runtime/base/positioned_json.h"
#include "runtime/config/file/base_config.h"
#include "runtime/config/keys/key.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// Returns all errors of a config, one per line.
Status ErrorsOf(const config::CheckResult& result) {
  std::string message;
  for (const config::Issue& issue : result.errors) {
    message += (message.empty() ? "" : "\n") + issue.message;
  }
  return InvalidArgumentError(std::move(message));
}

StatusOr<config::BaseConfig> ReadBuiltInConfig(const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const config::ConfigText text,
                      config::ReadConfigText(share.default_config().string()));
  const JsonReading reading = ReadPositionedJson(text.text);
  if (!reading.problems.empty()) {
    return InvalidArgumentError(text.name + ": " + reading.problems.front().message);
  }
  return config::BaseConfig{
      .name = "the built-in config", .keys = FullValue(reading.root), .is_built_in = true};
}

// Returns `changed`, a config, with this schedule. No flag sets the length of a decay, so the
// config's own number is kept, else it is the number of steps.
Json WithSchedule(Json changed, Json section) {
  const Json::json_pointer total("/scheduler/params/total_num_steps");
  const bool falls = section["type"] == "WarmupDecayLR" || section["type"] == "WarmupCosineLR";
  if (falls) {
    section["params"]["total_num_steps"] = changed.contains(total) ? changed[total] : Json("auto");
  }
  changed["scheduler"] = std::move(section);
  return changed;
}

// Drops errors of the old schedule. It is replaced, and the new one is checked again.
void DropErrorsOfTheSchedule(config::CheckResult* result) {
  std::erase_if(result->errors,
                [](const config::Issue& error) { return config::Key("scheduler").Has(error.key); });
}

}  // namespace

StatusOr<config::ConfigText> ReadJobConfig(const TrainFlags& flags, const ShareFolder& share,
                                           config::JobFacts* facts) {
  if (!flags.deepspeed_config.empty()) {
    StatusOr<config::ConfigText> config = config::ReadConfigText(flags.deepspeed_config);
    if (!config.ok()) return config.status().WithContext("--deepspeed_config");
    return config;
  }
  if (!facts->base) {
    DS_ASSIGN_OR_RETURN(facts->base, ReadBuiltInConfig(share));
  }
  return config::ConfigText{.text = "{}", .name = facts->base->name};
}

config::ConfigText RunsConfig(const config::TrainJob& job, const TrainFlags& flags) {
  auto json = Json::parse(job.ds_config, nullptr, /*allow_exceptions=*/false);
  json = config::PutAutosBack(std::move(json), job.derived_keys);
  return {.text = config::DropFlagKeys(std::move(json), flags.training).dump(),
          .name = "the run's config"};
}

config::CheckResult JudgeJobConfig(const config::ConfigText& config, const TrainFlags& flags,
                                   const config::JobFacts& facts) {
  config::CheckResult result = config::CheckConfig(config.text, config.name, facts);
  if (!flags.schedule.any()) return result;
  DropErrorsOfTheSchedule(&result);
  if (!result.errors.empty()) return result;
  // Schedule flags replace the full section of the built-in config.
  const bool is_built_in = facts.base && facts.base->is_built_in;
  Json own = config::PutAutosBack(result.given, result.derived);
  StatusOr<Json> section = MakeSchedulerSection(
      flags.schedule,
      {.section = is_built_in ? Json() : own.value("scheduler", Json()), .training = facts.flags});
  if (!section.ok()) {
    result.ok = false;
    result.errors.push_back({"scheduler", std::string(section.status().message())});
    return result;
  }
  config::JobFacts now = facts;
  now.base.reset();  // already merged
  now.is_generated = true;
  config::CheckResult changed =
      config::CheckConfig(WithSchedule(std::move(own), *std::move(section)).dump(),
                          config.name + " with " + flags.schedule.name(), now);
  for (config::Issue& warning : result.warnings) {
    if (warning.key.empty()) changed.warnings.push_back(std::move(warning));  // not found again
  }
  return changed;
}

StatusOr<config::CheckResult> CheckJobConfig(const config::ConfigText& config,
                                             const TrainFlags& flags,
                                             const config::JobFacts& facts) {
  config::CheckResult result = JudgeJobConfig(config, flags, facts);
  if (!result.errors.empty()) return ErrorsOf(result);
  return result;
}

}  // namespace ds::cli
