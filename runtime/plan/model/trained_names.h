#pragma once

// These functions decide by name which parameters of a model are trained: adapter targets, and
// patterns of frozen parameters.
//
// Ranks apply the rules to the model they have built, dsrun to its description, so that both refuse
// the same configs. Threads: FrozenNames is not thread-safe; the functions are pure.

#include <set>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {

// Parses targets in the form of PEFT's target_modules: names of layers (last component, partial or
// full), optionally separated by commas; a single word that is not a name, as a regular expression
// of full names; or "all-linear". Refuses an expression that does not compile.
Status ReadTargets(const std::vector<std::string>& words, LoraSpec* spec);

// Finds the layers of the model that have adapters (LoraSpec::layers), and fills in the targets if
// the spec names none. Refuses targets that match no layer, and a PEFT folder that does not fit.
Status ChooseLayers(const ModelNames& model, LoraSpec* spec);

// Refuses magnitudes (DoRA) of an adapted layer if tensor ranks split its rows.
Status CheckMagnitudes(const LoraSpec& spec, const std::string& layer, bool rows_are_shared);

// Refuses --quantize_base for a weight that a PEFT folder trains in full. `parameters` are the
// names left once quantized bytes replace the frozen weights.
Status CheckUnquantized(const LoraSpec& spec, const std::vector<std::string>& parameters);

// Finds the parameters with full names that match one of the shell patterns (*, ?, [a-z]).
class FrozenNames {
 public:
  explicit FrozenNames(const std::vector<std::string>& patterns)
      : patterns_(patterns), unmatched_(patterns.begin(), patterns.end()) {}

  // True if a pattern matches. Call it with the names of all parameters.
  bool Freezes(const std::string& name);
  // Refuses a pattern that matched no name, and a model with nothing left to train.
  Status Check(bool trains) const;

 private:
  std::vector<std::string> patterns_;
  std::set<std::string> unmatched_;
  std::string example_;  // of a name
};

}  // namespace ds::models
