#pragma once

// Three programs are translated from, and what each of them writes becomes a Translation:
// Accelerate's config, the arguments of transformers' Trainer, the words of the deepspeed launcher.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/translate/translation.h"
#include "runtime/base/status.h"

namespace ds::cli {

// TranslateAccelerateConfig: what `accelerate config` writes (default_config.yaml) as flags in
// front of a command, flags of `train` and a ds_config. The names are those of accelerate 1.15
// (ClusterConfig, the options of `accelerate launch`; a golden). Pure.

// True of an object that has the keys of such a file.
bool IsAccelerateConfig(const nlohmann::ordered_json& config);

// `deepspeed` is the ds_config that `deepspeed_config_file` names; null when it names none.
// Requires IsAccelerateConfig(config).
Translation TranslateAccelerateConfig(const nlohmann::ordered_json& config,
                                      const nlohmann::ordered_json& deepspeed);

// The path that `deepspeed_config_file` names; "" when it names none.
std::string AccelerateDeepspeedPath(const nlohmann::ordered_json& config);

// TranslateTrainingArguments: the arguments of transformers' Trainer as flags of `train` and a
// ds_config. Arguments that are not given have Trainer's defaults, which are not dsrun's: 3 epochs,
// a linear decay, no warm-up, no weight decay on norms and biases. Pure.

// Holds what the arguments refer to and do not say.
struct TrainerContext {
  // The optimizer steps of the training, to whose end rates fall; absent: as max_steps says, else
  // not known.
  std::optional<std::int64_t> steps;
  // The ds_config that `deepspeed` names, where it is a path.
  nlohmann::ordered_json deepspeed;
};

// Requires that `arguments` is an object, as TrainingArguments.to_json_string() writes it or as
// HfArgumentParser reads it.
Translation TranslateTrainingArguments(const nlohmann::ordered_json& arguments,
                                       const TrainerContext& context);

// The path that `deepspeed` names; "" when it names none.
std::string DeepspeedPath(const nlohmann::ordered_json& arguments);

// TranslateDeepspeedWords: a command line of the `deepspeed` launcher (0.19) as one of dsrun. What
// each flag means here says dsrun's own parser of launch flags, which knows DeepSpeed's names.
// Pure.

// `words` begin behind "deepspeed". An error when there is no script, or a flag that is none of
// DeepSpeed's.
StatusOr<Translation> TranslateDeepspeedWords(const std::vector<std::string>& words);

// ReadFlatYaml reads the part of YAML 1.1 that PyYAML's safe_dump writes of settings: a mapping of
// names to scalars, to {} and [], to lists of scalars, and to mappings of the same kind, one
// deeper. Comments, quoted texts and a leading "---" are read, too. Scalars mean what PyYAML's
// safe_load makes of them: null, booleans, whole numbers, numbers with a point, texts.
//
// Everything else (anchors, tags, block texts, flow mappings with something in them, deeper
// nesting, tabs, a name twice) is refused with its line. Pure.

// The error begins "line N: ".
StatusOr<nlohmann::ordered_json> ReadFlatYaml(std::string_view text);

}  // namespace ds::cli
