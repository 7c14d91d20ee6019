#include "cli/translate/trainer_schedule.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kType[] = "lr_scheduler_type";
constexpr char kOneLater[] = ", whose warm-up begins one update later than Trainer's";

// Its kwargs, which are an object, or one as a text; discarded when they are something else.
Json KwargsOf(const GivenArguments& arguments) {
  if (!arguments.Has("lr_scheduler_kwargs")) return Json::object();
  Json kwargs = arguments.Get("lr_scheduler_kwargs");
  if (kwargs.is_string()) {
    kwargs = Json::parse(kwargs.get<std::string>(), nullptr, /*allow_exceptions=*/false);
  }
  return kwargs.is_object() ? kwargs : Json(Json::value_t::discarded);
}

// A scheduler section, and what it is to Trainer's.
struct Section {
  std::string type;
  Json params;
  std::string differs;  // "" = in nothing
};

void Put(const Section& section, const std::string& type, Translation* translation) {
  translation->ds_config["scheduler"] = {{"type", section.type}, {"params", section.params}};
  const Mapping mapping = section.differs.empty() ? Mapping::kWhole : Mapping::kNearly;
  translation->Add(mapping, kType, type, "scheduler.type " + section.type + section.differs);
}

Section Linear(std::int64_t steps, std::int64_t warmup) {
  if (warmup == 0) {
    return {"LinearLR", {{"start_factor", 1.0}, {"end_factor", 0.0}, {"total_iters", steps}}, ""};
  }
  return {"WarmupDecayLR",
          {{"warmup_min_lr", 0.0},
           {"warmup_num_steps", warmup},
           {"warmup_type", "linear"},
           {"total_num_steps", steps}},
          kOneLater};
}

// Falls to `lowest`, a share of the rate, which is `rate`.
Section Cosine(std::int64_t steps, std::int64_t warmup, double lowest, double rate) {
  if (warmup == 0) {
    return {"CosineAnnealingLR", {{"T_max", steps}, {"eta_min", lowest * rate}}, ""};
  }
  return {"WarmupCosineLR",
          {{"warmup_min_ratio", 0.0},
           {"warmup_num_steps", warmup},
           {"warmup_type", "linear"},
           {"cos_min_ratio", lowest},
           {"total_num_steps", steps}},
          kOneLater};
}

// Nothing when the kwargs ask for what dsrun does not have.
std::optional<double> LowestShare(const std::string& type, const Json& kwargs, double rate) {
  for (const auto& [name, value] : kwargs.items()) {
    const bool is_half = name == "num_cycles" && value == 0.5;
    const bool is_lowest = type == "cosine_with_min_lr" && value.is_number() &&
                           (name == "min_lr_rate" || (name == "min_lr" && rate > 0.0));
    if (!is_half && !is_lowest) return std::nullopt;
  }
  if (kwargs.contains("min_lr_rate")) return kwargs["min_lr_rate"].get<double>();
  return kwargs.contains("min_lr") ? kwargs["min_lr"].get<double>() / rate : 0.0;
}

void PutDecay(const std::string& type, std::int64_t steps, std::int64_t warmup,
              GivenArguments* arguments, Translation* translation) {
  if (type == "linear") return Put(Linear(steps, warmup), type, translation);
  const Json kwargs = KwargsOf(*arguments);
  const double rate = arguments->Number("learning_rate").value_or(0.0);
  const std::optional<double> lowest = LowestShare(type, kwargs, rate);
  if (lowest) return Put(Cosine(steps, warmup, *lowest, rate), type, translation);
  arguments->Miss("lr_scheduler_kwargs",
                  "of a cosine dsrun has half a wave, with a lowest rate for cosine_with_min_lr");
}

}  // namespace

std::optional<std::int64_t> WarmupSteps(std::optional<std::int64_t> steps,
                                        GivenArguments* arguments) {
  const bool is_ratio =
      arguments->Has("warmup_ratio") && !(arguments->Number("warmup_steps") > 0.0);
  const char* const name = is_ratio ? "warmup_ratio" : "warmup_steps";
  const std::optional<double> given = arguments->Number(name);
  if (!given) return std::nullopt;
  if (*given >= 1.0 || *given == 0.0) return static_cast<std::int64_t>(*given);
  if (steps) return static_cast<std::int64_t>(std::ceil(*given * static_cast<double>(*steps)));
  arguments->Miss(name, "a share of all steps, which epochs do not say: give --steps");
  return std::nullopt;
}

void TranslateSchedule(std::optional<std::int64_t> steps, GivenArguments* arguments,
                       Translation* translation) {
  const std::string type = arguments->Text(kType);
  const Json kwargs = KwargsOf(*arguments);
  if (kwargs.is_discarded()) {
    return arguments->Miss("lr_scheduler_kwargs", "it must be a JSON object, or one as a text");
  }
  if (!kwargs.empty() && (type == "linear" || type.starts_with("constant"))) {
    return arguments->Miss("lr_scheduler_kwargs", type + " takes none");
  }
  if (type == "constant") {
    translation->Add(Mapping::kWhole, kType, type, "no scheduler");
    return;
  }
  const std::optional<std::int64_t> warmup = WarmupSteps(steps, arguments);
  if (!warmup) return;
  if (type == "constant_with_warmup") {
    if (*warmup == 0) return translation->Add(Mapping::kWhole, kType, type, "no scheduler");
    return Put({"WarmupLR",
                {{"warmup_min_lr", 0.0}, {"warmup_num_steps", *warmup}, {"warmup_type", "linear"}},
                kOneLater},
               type, translation);
  }
  if (type != "linear" && type != "cosine" && type != "cosine_with_min_lr") {
    return arguments->Miss(kType,
                           "dsrun has no such schedule; write a scheduler of "
                           "build/share/dsrun/ds_config.md into the ds_config");
  }
  if (steps) return PutDecay(type, *steps, *warmup, arguments, translation);
  arguments->Miss(kType, "it falls up to the last step, which epochs do not say: give --steps");
}

}  // namespace ds::cli
