#include "cli/train/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "cli/flags/wrap_text.h"
#include "cli/train/find_model.h"
#include "runtime/base/files.h"
#include "runtime/base/positioned_json.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxRecipeBytes = std::size_t{1} << 20;

bool StartsFromWeights(const TrainInputs& inputs) { return HasWeights(inputs.job.model); }

int StageOf(const TrainInputs& inputs) { return inputs.config.zero_optimization.stage; }

std::string StageText(const TrainInputs& inputs) {
  return "zero_optimization.stage is " + std::to_string(StageOf(inputs));
}

struct Feature {
  std::string_view name;
  bool (*holds)(const TrainInputs& inputs);
  std::string_view meaning;                        // follows "recipe NAME"
  std::string (*lack)(const TrainInputs& inputs);  // follows "but"
};

constexpr Feature kFeatures[] = {
    {"random_weights", [](const TrainInputs& inputs) { return !StartsFromWeights(inputs); },
     "starts from seeded random weights",
     [](const TrainInputs& inputs) {
       return "--model " + inputs.job.model + " has trained ones (give its config.json alone)";
     }},
    {"weights", StartsFromWeights, "starts from trained weights",
     [](const TrainInputs& inputs) {
       return "--model " + inputs.job.model +
              " has none: no model.safetensors, and no model.safetensors.index.json";
     }},
    {"zero_stage_2", [](const TrainInputs& inputs) { return StageOf(inputs) >= 2; },
     "shards gradients and optimizer state", StageText},
    {"zero_stage_3", [](const TrainInputs& inputs) { return StageOf(inputs) == 3; },
     "shards the weights", StageText},
    {"offload",
     [](const TrainInputs& inputs) {
       const config::ZeroConfig& zero = inputs.config.zero_optimization;
       return zero.offload_param.device != config::OffloadDevice::kNone ||
              zero.offload_optimizer.device != config::OffloadDevice::kNone;
     },
     "keeps model state off the device",
     [](const TrainInputs&) {
       return std::string("neither offload_param nor offload_optimizer names a device");
     }},
    {"adapters", [](const TrainInputs& inputs) { return inputs.job.adapts(); }, "trains adapters",
     [](const TrainInputs&) { return std::string("--lora_rank 0 asks for none"); }},
    {"quantised_base", [](const TrainInputs& inputs) { return !inputs.job.quantize_base.empty(); },
     "quantises the model below its adapters",
     [](const TrainInputs&) { return std::string("--quantize_base names no format"); }},
    {"whole_documents", [](const TrainInputs& inputs) { return inputs.job.packing == "whole"; },
     "packs complete documents",
     [](const TrainInputs& inputs) { return "--packing is " + inputs.job.packing; }},
    {"tensor_ranks", [](const TrainInputs& inputs) { return inputs.config.parallel.tensor > 1; },
     "shards each matrix over ranks",
     [](const TrainInputs&) { return std::string("one tensor rank is asked for (--tp)"); }},
    {"sequence_ranks",
     [](const TrainInputs& inputs) { return inputs.config.parallel.sequence > 1; },
     "splits each sample over ranks",
     [](const TrainInputs&) { return std::string("one sequence rank is asked for (--sp)"); }},
    {"stages", [](const TrainInputs& inputs) { return inputs.config.parallel.pipeline > 1; },
     "partitions the layers into stages",
     [](const TrainInputs&) { return std::string("one stage is asked for (--pp)"); }},
};

const Feature* FindFeature(std::string_view name) {
  for (const Feature& feature : kFeatures) {
    if (feature.name == name) return &feature;
  }
  return nullptr;
}

// Checks that `names` is a list of known features.
Status CheckFeatureNames(const nlohmann::ordered_json& names) {
  if (!names.is_array()) return InvalidArgumentError("stands_for must be a list");
  std::vector<std::string> known;
  for (const Feature& feature : kFeatures) known.emplace_back(feature.name);
  for (const auto& name : names) {
    if (!name.is_string()) return InvalidArgumentError("stands_for must be a list of texts");
    const auto text = name.get<std::string>();
    if (FindFeature(text) == nullptr) {
      return InvalidArgumentError("stands_for: no feature is called " + text +
                                  DidYouMean(text, known));
    }
  }
  return OkStatus();
}

// Two alternative flags; only one may be in effect.
struct Replacement {
  std::string_view given, replaced;
};
constexpr Replacement kReplacements[] = {
    {"steps", "epochs"},
    {"epochs", "steps"},
    {"lr_schedule", "lr_scheduler_type"},
    {"lr_schedule", "lr_scheduler_kwargs"},
    {"lr_scheduler_type", "lr_schedule"},
    {"eval_data", "eval_split"},
    {"eval_split", "eval_data"},
    {"lora_adapter", "lora_rank"},
    {"lora_adapter", "lora_alpha"},
    {"lora_adapter", "lora_targets"},
    {"lora_adapter", "lora_rslora"},
    {"lora_adapter", "lora_dora"},
};

bool Holds(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsReplaced(const std::string& flag, const std::vector<std::string>& given) {
  return Holds(given, flag) ||
         std::any_of(std::begin(kReplacements), std::end(kReplacements), [&](const auto& row) {
           return row.replaced == flag && Holds(given, row.given);
         });
}

std::string WordOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void AddWords(const std::string& flag, const Json& value, std::vector<std::string>* words) {
  words->push_back("--" + flag);
  if (value == true) return;
  if (!value.is_array()) return words->push_back(WordOf(value));
  for (const Json& element : value) words->push_back(WordOf(element));
}

Status NoSuchRecipe(const std::string& name, const ShareFolder& share) {
  const std::vector<std::string> known = share.Recipes();
  std::string list;
  for (const std::string& recipe : known) list += (list.empty() ? "" : ", ") + recipe;
  return NotFoundError("--recipe " + name + ": no such recipe (" + list + ")" +
                       DidYouMean(name, known));
}

bool IsFlagValue(const Json& value) {
  return value.is_string() || value.is_number() || value == true ||
         (value.is_array() && !value.empty() &&
          std::all_of(value.begin(), value.end(), [](const Json& element) {
            return element.is_string() || element.is_number();
          }));
}

// Checks the parts of a recipe file.
Status CheckParts(const Json& file) {
  static const std::vector<std::string> kParts = {"about", "stands_for", "train", "ds_config"};
  for (const auto& [name, value] : file.items()) {
    if (!Holds(kParts, name)) {
      return InvalidArgumentError("unknown key " + name + DidYouMean(name, kParts));
    }
  }
  for (const char* name : {"train", "ds_config"}) {
    if (!file.contains(name) || !file[name].is_object()) {
      return InvalidArgumentError(std::string(name) + " must be there, as an object");
    }
  }
  for (const auto& [flag, value] : file["train"].items()) {
    if (!IsFlagValue(value)) {
      return InvalidArgumentError("train." + flag +
                                  " must be a text, a number, true or a list of them");
    }
  }
  if (file.contains("about") && !file["about"].is_string()) {
    return InvalidArgumentError("about must be a text");
  }
  return CheckFeatureNames(file.value("stands_for", Json::array()));
}

StatusOr<Recipe> ReadRecipe(const std::string& name, const fs::path& path) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxRecipeBytes));
  const JsonReading reading = ReadPositionedJson(text);
  if (!reading.problems.empty()) {
    const JsonProblem& problem = reading.problems.front();
    return InvalidArgumentError(std::to_string(problem.position.line) + ":" +
                                std::to_string(problem.position.column) + ": " + problem.message);
  }
  const Json file = FullValue(reading.root);
  if (!file.is_object()) return InvalidArgumentError("a recipe is an object: { ... }");
  DS_RETURN_IF_ERROR(CheckParts(file));
  return Recipe{.name = name,
                .about = file.value("about", ""),
                .stands_for = file.value("stands_for", std::vector<std::string>()),
                .flags = file["train"],
                .ds_config = file["ds_config"]};
}

}  // namespace

StatusOr<Recipe> FindRecipe(const std::string& name, const ShareFolder& share) {
  std::error_code error;
  const bool is_file = name.ends_with(".json");
  const fs::path path = is_file ? fs::path(name) : share.recipe(name);
  const bool leaves_folder = !is_file && name.find('/') != std::string::npos;
  if (leaves_folder || !fs::exists(path, error)) return NoSuchRecipe(name, share);
  StatusOr<Recipe> recipe = ReadRecipe(is_file ? path.stem().string() : name, path);
  if (!recipe.ok()) return recipe.status().WithContext("--recipe " + name);
  return recipe;
}

StatusOr<std::string> ListRecipes(const ShareFolder& share) {
  constexpr std::size_t kNameColumns = 24;
  std::string list;
  for (const std::string& name : share.Recipes()) {
    DS_ASSIGN_OR_RETURN(const Recipe recipe, FindRecipe(name, share));
    const std::string row = fmt::format("{:<{}} {}", name, kNameColumns - 1, recipe.about);
    list += WrapText(row, kHelpColumns, kNameColumns) + "\n";
  }
  return list;
}

std::vector<std::string> WordsBelow(const Recipe& recipe, const std::vector<std::string>& given) {
  std::vector<std::string> words;
  for (const auto& [flag, value] : recipe.flags.items()) {
    if (!IsReplaced(flag, given)) AddWords(flag, value, &words);
  }
  return words;
}

Status CheckRecipeApplies(const Recipe& recipe, const TrainInputs& inputs) {
  for (const std::string& name : recipe.stands_for) {
    const Feature* const feature = FindFeature(name);
    if (feature == nullptr || feature->holds(inputs)) continue;
    return InvalidArgumentError("recipe " + recipe.name + " " + std::string(feature->meaning) +
                                ", but " + feature->lack(inputs) +
                                "; change that, or train without --recipe");
  }
  return OkStatus();
}

}  // namespace ds::cli
