#include "cli/train/recipe_features.h"

#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

bool HasWeights(const TrainInputs& inputs) {
  const fs::path model = inputs.job.model;  // a preset's name has none
  std::error_code error;
  return model.is_absolute() && (fs::exists(model / "model.safetensors", error) ||
                                 fs::exists(model / "model.safetensors.index.json", error));
}

int StageOf(const TrainInputs& inputs) { return inputs.config.zero_optimization.stage; }

std::string StageText(const TrainInputs& inputs) {
  return "zero_optimization.stage is " + std::to_string(StageOf(inputs));
}

struct Feature {
  std::string_view name;
  bool (*holds)(const TrainInputs& inputs);
  std::string_view meaning;                        // behind "recipe NAME"
  std::string (*lack)(const TrainInputs& inputs);  // behind "but"
};

constexpr Feature kFeatures[] = {
    {"random_weights", [](const TrainInputs& inputs) { return !HasWeights(inputs); },
     "starts from seeded random weights",
     [](const TrainInputs& inputs) {
       return "--model " + inputs.job.model + " has trained ones (give its config.json alone)";
     }},
    {"weights", HasWeights, "goes on from trained weights",
     [](const TrainInputs& inputs) {
       return "--model " + inputs.job.model +
              " has none: no model.safetensors, and no model.safetensors.index.json";
     }},
    {"zero_stage_2", [](const TrainInputs& inputs) { return StageOf(inputs) >= 2; },
     "shares out gradients and optimizer state", StageText},
    {"zero_stage_3", [](const TrainInputs& inputs) { return StageOf(inputs) == 3; },
     "shares out the weights", StageText},
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
     "packs whole documents",
     [](const TrainInputs& inputs) { return "--packing is " + inputs.job.packing; }},
    {"tensor_ranks", [](const TrainInputs& inputs) { return inputs.config.parallel.tensor > 1; },
     "cuts each matrix over ranks",
     [](const TrainInputs&) { return std::string("one tensor rank is asked for (--tp)"); }},
    {"sequence_ranks",
     [](const TrainInputs& inputs) { return inputs.config.parallel.sequence > 1; },
     "cuts each sample over ranks",
     [](const TrainInputs&) { return std::string("one sequence rank is asked for (--sp)"); }},
    {"stages", [](const TrainInputs& inputs) { return inputs.config.parallel.pipeline > 1; },
     "cuts the layers into stages",
     [](const TrainInputs&) { return std::string("one stage is asked for (--pp)"); }},
};

const Feature* FindFeature(std::string_view name) {
  for (const Feature& feature : kFeatures) {
    if (feature.name == name) return &feature;
  }
  return nullptr;
}

}  // namespace

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

Status CheckStandsFor(const Recipe& recipe, const TrainInputs& inputs) {
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
