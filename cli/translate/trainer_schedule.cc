#include "cli/translate/trainer_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/suggest.h"
#include "runtime/config/schedule_types.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kType[] = "lr_scheduler_type";
constexpr char kKwargs[] = "lr_scheduler_kwargs";

// Returns an object, also if given as text, without null members; discarded if it is something
// else.
Json KwargsOf(const GivenArguments& arguments) {
  if (!arguments.Has(kKwargs)) return Json::object();
  Json kwargs = arguments.Get(kKwargs);
  if (kwargs.is_string()) {
    kwargs = Json::parse(kwargs.get<std::string>(), nullptr, /*allow_exceptions=*/false);
  }
  if (!kwargs.is_object()) return Json(Json::value_t::discarded);
  Json given = Json::object();
  for (const auto& [name, value] : kwargs.items()) {
    if (!value.is_null()) given[name] = value;
  }
  return given;
}

std::string Joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// Returns the reason why this schedule does not accept the kwargs; "" if it does.
std::string ProblemOf(const Json& kwargs, const config::ScheduleType& type) {
  if (kwargs.is_discarded()) return "it must be a JSON object, or one as a text";
  const std::vector<std::string> names = config::KwargNames(type);
  for (const auto& [name, value] : kwargs.items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string schedule(type.name);
    if (names.empty()) return schedule + " takes none";
    return schedule + " takes no " + name + ", but " + Joined(names) + DidYouMean(name, names);
  }
  return "";
}

// Trainer's warm-up: a number of steps, or a fraction of all steps if below 1.
struct Warmup {
  const char* name;
  double value = 0.0;

  bool is_share() const { return value > 0.0 && value < 1.0; }
  Json as_flag() const { return is_share() ? Json(value) : Json(static_cast<std::int64_t>(value)); }
};

// Returns nothing, after a remark, if it cannot be read.
std::optional<Warmup> WarmupOf(GivenArguments* arguments) {
  const bool is_ratio =
      arguments->Has("warmup_ratio") && !(arguments->Number("warmup_steps") > 0.0);
  const char* const name = is_ratio ? "warmup_ratio" : "warmup_steps";
  std::optional<double> value = arguments->Number(name);
  if (!value) return std::nullopt;
  if (is_ratio && *value > 1.0) {
    arguments->Miss(name, "it must be a share of all steps, from 0 to 1");
    return std::nullopt;
  }
  // As a flag, 1 would mean one step. The next smaller fraction rounds up to all steps.
  if (is_ratio && *value == 1.0) value = std::nextafter(1.0, 0.0);
  return Warmup{name, *value};
}

void SetWarmupFlag(const Warmup& warmup, GivenArguments* arguments, Translation* translation) {
  translation->SetFlag(warmup.name, arguments->Get(warmup.name), "warmup_steps", warmup.as_flag());
}

void Put(const config::ScheduleType& type, const Json& kwargs, const Warmup& warmup,
         GivenArguments* arguments, Translation* translation) {
  Json section = config::MakeTransformersSection(type, kwargs);
  const std::string name(type.name);
  translation->Add(Mapping::kExact, kType, name, "scheduler.type \"" + name + "\"");
  if (!kwargs.empty()) {
    translation->Add(Mapping::kExact, kKwargs, kwargs, "scheduler.params of the same names");
  }
  if (warmup.is_share()) {
    SetWarmupFlag(warmup, arguments, translation);
  } else {
    section["params"]["warmup_num_steps"] = warmup.as_flag();
    if (warmup.value > 0.0) {
      translation->Add(Mapping::kExact, warmup.name, arguments->Get(warmup.name),
                       "scheduler.params.warmup_num_steps " + warmup.as_flag().dump());
    }
  }
  translation->ds_config["scheduler"] = std::move(section);
}

std::string ExplainMissing(const std::string& type) {
  if (type == "reduce_lr_on_plateau" || type == "greedy") {
    return "it follows a metric, and dsrun's rates follow from the number of the step alone";
  }
  std::vector<std::string> names;
  for (const config::ScheduleType& each : config::TransformersSchedules()) {
    names.emplace_back(each.name);
  }
  return "transformers has no such schedule" + DidYouMean(type, names);
}

}  // namespace

void TranslateSchedule(GivenArguments* arguments, Translation* translation) {
  const std::string name = arguments->Text(kType);
  const config::ScheduleType* const type = config::FindTransformersSchedule(name);
  if (type == nullptr) return arguments->Miss(kType, ExplainMissing(name));
  translation->expressed.insert(translation->expressed.end(), {kType, kKwargs});
  const Json kwargs = KwargsOf(*arguments);
  if (const std::string problem = ProblemOf(kwargs, *type); !problem.empty()) {
    return arguments->Miss(kKwargs, problem);
  }
  if (type->params.empty()) {
    return translation->Add(Mapping::kExact, kType, name, "no scheduler");
  }
  if (const auto warmup = WarmupOf(arguments)) {
    Put(*type, kwargs, *warmup, arguments, translation);
  }
}

void TranslateWarmup(GivenArguments* arguments, Translation* translation) {
  const auto warmup = WarmupOf(arguments);
  if (warmup && warmup->value > 0.0) SetWarmupFlag(*warmup, arguments, translation);
}

}  // namespace ds::cli
