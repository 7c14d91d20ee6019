#pragma once

// Translators into Translation from three sources: Accelerate's config, the arguments of
// transformers' Trainer, and command lines of the deepspeed launcher.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/translate/translation.h"
#include "runtime/base/status.h"

namespace ds::cli {

// TranslateAccelerateConfig converts the file of `accelerate config` (default_config.yaml) into
// launch flags, flags of `train` and a ds_config. The names match accelerate 1.15 (ClusterConfig,
// the options of `accelerate launch`; a golden). Pure.

// True for an object with the keys of such a file.
bool IsAccelerateConfig(const nlohmann::ordered_json& config);

// `deepspeed` is the ds_config named by `deepspeed_config_file`; null if there is none. Requires
// IsAccelerateConfig(config).
Translation TranslateAccelerateConfig(const nlohmann::ordered_json& config,
                                      const nlohmann::ordered_json& deepspeed);

// Returns the path in `deepspeed_config_file`; "" if there is none.
std::string AccelerateDeepspeedPath(const nlohmann::ordered_json& config);

// TranslateTrainingArguments converts the arguments of transformers' Trainer into flags of `train`
// and a ds_config. Missing arguments get Trainer's defaults, which differ from dsrun's: 3 epochs, a
// linear decay, no warm-up, no weight decay on norms and biases. Pure.

// Inputs that the arguments refer to but do not contain.
struct TrainerContext {
  // The optimizer steps of the full training; rates decay until then. Absent: from max_steps, else
  // unknown.
  std::optional<std::int64_t> steps;
  // The ds_config that `deepspeed` names, if it is a path.
  nlohmann::ordered_json deepspeed;
};

// `arguments` must be an object in the format of TrainingArguments.to_json_string(), which
// HfArgumentParser also reads.
Translation TranslateTrainingArguments(const nlohmann::ordered_json& arguments,
                                       const TrainerContext& context);

// Returns the path in `deepspeed`; "" if there is none.
std::string DeepspeedPath(const nlohmann::ordered_json& arguments);

// TranslateDeepspeedWords converts a command line of the `deepspeed` launcher (0.19) into one of
// dsrun. It interprets each flag with dsrun's own parser of launch flags, which accepts DeepSpeed's
// names. Pure.

// `words` are the words after "deepspeed". Fails without a script, or with a flag that DeepSpeed
// does not have.
StatusOr<Translation> TranslateDeepspeedWords(const std::vector<std::string>& words);

// ReadFlatYaml reads the subset of YAML 1.1 that PyYAML's safe_dump writes for settings: a mapping
// from names to scalars, {} and [], lists of scalars, and one nested level of such mappings. It
// also accepts comments, quoted texts and a leading "---". Scalars have the values of PyYAML's
// safe_load: null, booleans, integers, numbers with a point, texts.
//
// Everything else (anchors, tags, block texts, non-empty flow mappings, deeper nesting, tabs,
// duplicate names) is rejected with its line. Pure.

// Errors begin with "line N: ".
StatusOr<nlohmann::ordered_json> ReadFlatYaml(std::string_view text);

}  // namespace ds::cli
