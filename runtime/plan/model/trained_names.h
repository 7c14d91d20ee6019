#pragma once

// The names that decide which parameters of a model are trained: targets of adapters, and patterns
// of frozen parameters.
//
// Ranks apply these rules to the model that they have built, dsrun to its description, so that both
// refuse the same. Threads: a FrozenNames belongs to one, functions are pure.

#include <set>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {

// Reads targets as users write them, which are PEFT's target_modules: names of layers (last,
// partial or full ones), also with commas between them; one word that is no name: a regular
// expression of full names; or "all-linear". Refuses an expression that is not understood.
Status ReadTargets(const std::vector<std::string>& words, LoraSpec* spec);

// Finds the layers of the model that have adapters (LoraSpec::layers), and fills in the targets
// where the spec names none. Refuses targets that no layer has, and a PEFT folder that does not
// fit.
Status ChooseLayers(const ModelNames& model, LoraSpec* spec);

// Refuses magnitudes (DoRA) of an adapted layer where each tensor rank has a part of its rows.
Status CheckMagnitudes(const LoraSpec& spec, const std::string& layer, bool rows_are_shared);

// Refuses bytes (--quantize_base) for a weight that a PEFT folder has whole, to train it.
// `parameters` are those that are left once bytes stand for the others.
Status CheckUnquantized(const LoraSpec& spec, const std::vector<std::string>& parameters);

// Finds the parameters whose full names match one of the patterns (as of file names: *, ?, [a-z]).
class FrozenNames {
 public:
  explicit FrozenNames(const std::vector<std::string>& patterns)
      : patterns_(patterns), unmatched_(patterns.begin(), patterns.end()) {}

  // True of a name that a pattern matches. Takes the names of all parameters.
  bool Freezes(const std::string& name);
  // Refuses a pattern that no name has matched, and to leave nothing to train.
  Status Check(bool trains) const;

 private:
  std::vector<std::string> patterns_;
  std::set<std::string> unmatched_;
  std::string example_;  // of the names
};

}  // namespace ds::models
