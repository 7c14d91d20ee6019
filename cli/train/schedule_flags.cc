#include "cli/train/schedule_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cli/flags/flag_parser.h"
#include "runtime/base/suggest.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/schedule_types.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// A schedule parameter of these flags. Its type is that of the ds_config key.
struct LegacyFlag {
  const char* name;
  const char* otherwise;  // JSON; "" = the schedule's own default applies
  const char* help;
};

constexpr LegacyFlag kLrRangeTest[] = {
    {"lr_range_test_min_lr", "0.001", "first rate"},
    {"lr_range_test_step_rate", "1.0", "growth per interval"},
    {"lr_range_test_step_size", "1000", "updates per interval"},
    {"lr_range_test_staircase", "false", "grow at the end of intervals only"}};
constexpr LegacyFlag kOneCycle[] = {
    {"cycle_first_step_size", "1000", "updates of the increase"},
    {"cycle_first_stair_count", "-1", "stairs of the increase (none)"},
    {"cycle_second_step_size", "", "updates of the decrease (as increase)"},
    {"cycle_second_stair_count", "-1", "stairs of the decrease (none)"},
    {"decay_step_size", "1000", "updates per interval of the decay"},
    {"cycle_min_lr", "0.01", "smallest rate"},
    {"cycle_max_lr", "0.1", "largest rate"},
    {"decay_lr_rate", "0.0", "decay of the rate after the cycle"},
    {"cycle_momentum", "", "cycle the momentum (it always does)"},
    {"cycle_min_mom", "0.8", "smallest momentum"},
    {"cycle_max_mom", "0.9", "largest momentum"},
    {"decay_mom_rate", "0.0", "growth of the momentum after the cycle"}};
constexpr LegacyFlag kWarmup[] = {{"warmup_min_lr", "0.0", "first rate"},
                                  {"warmup_max_lr", "0.001", "rate at the end of the warm-up"},
                                  {"warmup_num_steps", "1000", "updates of the warm-up"},
                                  {"warmup_type", "\"log\"", "log or linear"}};
constexpr LegacyFlag kWarmupCosine[] = {
    {"warmup_num_steps", "1000", ""},
    {"warmup_type", "\"log\"", ""},
    {"warmup_min_ratio", "0.01", "first rate, as a share of the lr"},
    {"cos_min_ratio", "0.01", "last rate, as a share of the lr"}};

struct LegacySchedule {
  std::string_view name;
  std::vector<LegacyFlag> flags;
};

std::vector<LegacySchedule> Schedules() {
  const auto list = [](const auto& flags) {
    return std::vector<LegacyFlag>(std::begin(flags), std::end(flags));
  };
  return {{"LRRangeTest", list(kLrRangeTest)},
          {"OneCycle", list(kOneCycle)},
          {"WarmupLR", list(kWarmup)},
          {"WarmupDecayLR", list(kWarmup)},
          {"WarmupCosineLR", list(kWarmupCosine)}};
}

std::vector<std::string> DeepSpeedsNames() {
  std::vector<std::string> names;
  for (const LegacySchedule& schedule : Schedules()) names.emplace_back(schedule.name);
  return names;
}

std::vector<std::string> TrainersNames() {
  std::vector<std::string> names;
  for (const config::ScheduleType& type : config::TransformersSchedules()) {
    names.emplace_back(type.name);
  }
  return names;
}

config::ValueType TypeOf(const LegacyFlag& flag) {
  return config::FindSetting("scheduler.params." + std::string(flag.name))->type;
}

std::string Help(const LegacySchedule& schedule, const LegacyFlag& flag) {
  std::string text = std::string(schedule.name) + ": " + flag.help;
  const std::string_view otherwise = flag.otherwise;
  const bool is_number =
      TypeOf(flag) != config::ValueType::kBool && !otherwise.empty() && otherwise != "-1";
  return is_number ? text + " (default: " + Json::parse(otherwise).dump() + ")" : text;
}

void AddFlag(CLI::App& app, const LegacyFlag& flag, const std::string& help, ScheduleFlags* flags) {
  const std::string name = flag.name;
  CLI::Option* option = nullptr;
  const auto take = [flags, name](const auto& value) { flags->given[name] = value; };
  switch (TypeOf(flag)) {
    case config::ValueType::kFloat:
      option = app.add_option_function<double>(FlagNames(name), take, help)
                   ->check(FiniteNumber())
                   ->type_name("X");
      break;
    case config::ValueType::kInt:
      option = app.add_option_function<std::int64_t>(FlagNames(name), take, help)
                   ->check(AnyWholeNumber())
                   ->type_name("N");
      break;
    case config::ValueType::kString:
      option = TakeOneOf(app.add_option_function<std::string>(FlagNames(name), take, help),
                         {"log", "linear"});
      break;
    default:  // a switch
      option = app.add_flag_callback(
          FlagNames(name), [flags, name] { flags->given[name] = true; }, help);
      break;
  }
  option->group("Schedules of DeepSpeed, instead of the ds_config's");
}

// Returns the transformers schedule in a `scheduler` section; null for other schedules or none.
const config::ScheduleType* TransformersTypeOf(const Json& section) {
  if (!section.is_object()) return nullptr;
  const Json type = section.value("type", Json());
  return type.is_string() ? config::FindTransformersSchedule(type.get<std::string>()) : nullptr;
}

// Returns the section's number of warm-up steps; null if it has none.
Json WarmupOfSection(const Json& section) {
  const Json::json_pointer key("/params/warmup_num_steps");
  const bool has_one = section.is_object() && section.contains(key) && section[key].is_number();
  return has_one ? section[key] : Json();
}

// Returns the schedule that the flags name. With kwargs alone, it is the section's schedule.
StatusOr<const config::ScheduleType*> ChooseTrainersType(const ScheduleFlags& flags,
                                                         const Json& section) {
  const config::ScheduleType* type =
      flags.lr_scheduler_type.empty() ? TransformersTypeOf(section)
                                      : config::FindTransformersSchedule(flags.lr_scheduler_type);
  if (type != nullptr) return type;
  if (flags.lr_scheduler_type.empty()) {
    return InvalidArgumentError(
        "--lr_scheduler_kwargs needs --lr_scheduler_type, the schedule that they belong to");
  }
  const std::vector<std::string> names = TrainersNames();
  return InvalidArgumentError("--lr_scheduler_type " + flags.lr_scheduler_type +
                              ": no such schedule (" + fmt::format("{}", fmt::join(names, ", ")) +
                              ")" + DidYouMean(flags.lr_scheduler_type, names));
}

// Returns the parameters other than lengths, from the flag, else from the section.
StatusOr<Json> ChooseKwargs(const ScheduleFlags& flags, const Json& section,
                            const config::ScheduleType& type) {
  if (const std::string& text = flags.lr_scheduler_kwargs; !text.empty()) {
    Json kwargs = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (kwargs.is_object()) return kwargs;
    return InvalidArgumentError("--lr_scheduler_kwargs " + text +
                                ": it must be a JSON object, such as '{\"num_cycles\": 2}'");
  }
  Json kept = Json::object();
  const config::ScheduleType* const former = TransformersTypeOf(section);
  if (former == nullptr) return kept;
  const std::vector<std::string> taken = config::KwargNames(type);
  for (const std::string& name : config::KwargNames(*former)) {
    const Json::json_pointer key("/params/" + name);
    if (!section.contains(key) || section[key].is_null()) continue;
    if (std::find(taken.begin(), taken.end(), name) == taken.end()) {
      return InvalidArgumentError(fmt::format(
          "--lr_scheduler_type {} takes no {}, unlike the {} that it replaces: remove it "
          "with --lr_scheduler_kwargs '{{}}'",
          type.name, name, former->name));
    }
    kept[name] = section[key];
  }
  return kept;
}

// Makes a section for Trainer's schedules. The run sets the end of the decay.
StatusOr<Json> MakeTrainersSection(const ScheduleFlags& flags, const ScheduleBelow& below) {
  if (!flags.lr_schedule.empty() || !flags.given.empty()) {
    const std::string other =
        flags.lr_schedule.empty() ? flags.given.begin()->first : "lr_schedule";
    return InvalidArgumentError("--" + other + " and --lr_scheduler_type ask for two schedules");
  }
  DS_ASSIGN_OR_RETURN(const config::ScheduleType* const type,
                      ChooseTrainersType(flags, below.section));
  DS_ASSIGN_OR_RETURN(const Json kwargs, ChooseKwargs(flags, below.section, *type));
  Json section = config::MakeTransformersSection(*type, kwargs);
  const Json warmup = WarmupOfSection(below.section);
  if (section["params"].contains("warmup_num_steps") && !warmup.is_null() &&
      !below.training.warmup_steps) {
    section["params"]["warmup_num_steps"] = warmup;
  }
  return section;
}

// Returns DeepSpeed's default, unless another flag or the previous warm-up sets the value.
Json DefaultOf(const LegacyFlag& flag, const ScheduleBelow& below) {
  const std::string_view name = flag.name;
  const bool is_said = (name == "warmup_max_lr" && below.training.learning_rate) ||
                       (name == "warmup_num_steps" && below.training.warmup_steps);
  if (is_said) return Json("auto");
  const Json warmup = name == "warmup_num_steps" ? WarmupOfSection(below.section) : Json();
  return warmup.is_null() || warmup == 0 ? Json::parse(flag.otherwise) : warmup;
}

}  // namespace

bool TakesWarmup(const ScheduleFlags& flags) {
  if (const auto* const type = config::FindTransformersSchedule(flags.lr_scheduler_type)) {
    return type->Takes(config::keys::kSchedulerParamsWarmupNumSteps);
  }
  return flags.lr_schedule.empty() || flags.lr_schedule.starts_with("Warmup");
}

void AddScheduleFlags(CLI::App& app, ScheduleFlags* flags) {
  constexpr const char* kTrainers =
      "Schedules of transformers' Trainer, instead of the ds_config's";
  OfferValues(
      app.add_option(FlagNames("lr_scheduler_type"), flags->lr_scheduler_type,
                     "linear, cosine, constant_with_warmup, polynomial, inverse_sqrt, "
                     "warmup_stable_decay and others (dsrun help ds_config, scheduler.type); "
                     "--warmup_steps sets the warm-up; the schedule ends with the run"),
      TrainersNames())
      ->group(kTrainers);
  app.add_option(FlagNames("lr_scheduler_kwargs"), flags->lr_scheduler_kwargs,
                 "parameters of the schedule, as a JSON object")
      ->type_name("JSON")
      ->group(kTrainers);
  OfferValues(app.add_option(FlagNames("lr_schedule"), flags->lr_schedule, "schedule of DeepSpeed"),
              DeepSpeedsNames())
      ->group("Schedules of DeepSpeed, instead of the ds_config's");
  for (const LegacySchedule& schedule : Schedules()) {
    if (schedule.name == "WarmupDecayLR") continue;  // has WarmupLR's
    for (const LegacyFlag& flag : schedule.flags) {
      if (*flag.help != '\0') AddFlag(app, flag, Help(schedule, flag), flags);
    }
  }
}

StatusOr<Json> MakeSchedulerSection(const ScheduleFlags& flags, const ScheduleBelow& below) {
  if (flags.is_transformers()) return MakeTrainersSection(flags, below);
  if (flags.lr_schedule.empty()) {
    return InvalidArgumentError("--" + flags.given.begin()->first +
                                " needs --lr_schedule, the schedule that it belongs to");
  }
  for (const LegacySchedule& schedule : Schedules()) {
    if (schedule.name != flags.lr_schedule) continue;
    auto rest = flags.given;
    Json params = Json::object();
    for (const LegacyFlag& flag : schedule.flags) {
      const auto given = rest.extract(flag.name);
      const bool is_silent = given.empty() && *flag.otherwise == '\0';
      if (!is_silent) params[flag.name] = given.empty() ? DefaultOf(flag, below) : given.mapped();
    }
    if (params.value("cycle_second_step_size", 0) == -1) params.erase("cycle_second_step_size");
    if (rest.empty()) return Json{{"type", schedule.name}, {"params", params}};
    return InvalidArgumentError("--" + rest.begin()->first +
                                " is not a parameter of --lr_schedule " + flags.lr_schedule);
  }
  return InvalidArgumentError("--lr_schedule " + flags.lr_schedule +
                              ": no such schedule; name others in the ds_config's scheduler.type" +
                              DidYouMean(flags.lr_schedule, DeepSpeedsNames()));
}

}  // namespace ds::cli
