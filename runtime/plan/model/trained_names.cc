#include "runtime/plan/model/trained_names.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "runtime/base/suggest.h"

namespace ds::models {
namespace {

bool IsModuleName(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
}

// Returns an empty list if something between commas is not a name, as in "(a{1,2})".
std::vector<std::string> SplitNames(std::string_view word) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= word.size();) {
    const std::size_t end = std::min(word.find(',', at), word.size());
    names.emplace_back(word.substr(at, end - at));
    at = end + 1;
  }
  const bool are_names = std::all_of(names.begin(), names.end(), IsModuleName);
  return are_names ? names : std::vector<std::string>();
}

std::string LastName(const std::string& layer) { return layer.substr(layer.rfind('.') + 1); }

std::vector<std::string> ListLastNames(const std::vector<std::string>& layers) {
  std::set<std::string> names;
  for (const std::string& layer : layers) names.insert(LastName(layer));
  return {names.begin(), names.end()};
}

Status NoSuchLayer(const std::string& target, const std::vector<std::string>& layers) {
  const std::vector<std::string> known = ListLastNames(layers);
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  return InvalidArgumentError("no linear layer of the model's layers is called " + target +
                              " (there are: " + list + ")" + DidYouMean(target, known));
}

Status NoMatch(const std::string& pattern, const std::vector<std::string>& layers) {
  return InvalidArgumentError(
      "no linear layer of the model's layers matches " + pattern +
      "; a regular expression matches full names" +
      (layers.empty() ? std::string() : ", which are like " + layers.front()));
}

StatusOr<std::vector<std::string>> FindByPattern(const LoraSpec& spec,
                                                 const std::vector<std::string>& layers) {
  std::vector<std::string> found;
  DS_ASSIGN_OR_RETURN(const ModulePattern pattern, ModulePattern::Compile(spec.target_pattern));
  for (const std::string& layer : layers) {
    DS_ASSIGN_OR_RETURN(const bool matches, pattern.Matches(layer));
    if (matches) found.push_back(layer);
  }
  if (found.empty()) return NoMatch(spec.target_pattern, layers);
  return found;
}

StatusOr<std::vector<std::string>> FindByNames(const std::vector<std::string>& names,
                                               const std::vector<std::string>& layers) {
  std::set<std::string> unmatched(names.begin(), names.end());
  std::vector<std::string> found;
  for (const std::string& layer : layers) {
    bool matches = false;
    for (const std::string& name : names) {
      if (!NamesModule(name, layer)) continue;
      unmatched.erase(name);
      matches = true;
    }
    if (matches) found.push_back(layer);
  }
  for (const std::string& name : names) {
    if (unmatched.contains(name)) return NoSuchLayer(name, layers);
  }
  return found;
}

}  // namespace

Status ReadTargets(const std::vector<std::string>& words, LoraSpec* spec) {
  spec->targets.clear();
  spec->target_pattern.clear();
  if (words.size() == 1 && words[0] == kAllLinear) return OkStatus();
  if (words.size() == 1 && SplitNames(words[0]).empty()) {
    spec->target_pattern = words[0];
    return ModulePattern::Compile(words[0]).status();
  }
  for (const std::string& word : words) {
    std::vector<std::string> names = SplitNames(word);
    if (names.empty()) names = {word};  // no layer has it
    spec->targets.insert(spec->targets.end(), names.begin(), names.end());
  }
  return OkStatus();
}

Status ChooseLayers(const ModelNames& model, LoraSpec* spec) {
  if (spec->is_read()) {
    TakeTiedHead(model, spec);
    return CheckFits(*spec, model);
  }
  std::vector<std::string> found = model.layers;
  if (!spec->target_pattern.empty()) {
    DS_ASSIGN_OR_RETURN(found, FindByPattern(*spec, model.layers));
  } else if (!spec->targets.empty()) {
    DS_ASSIGN_OR_RETURN(found, FindByNames(spec->targets, model.layers));
  } else {
    spec->targets = ListLastNames(model.layers);
  }
  spec->layers.clear();
  for (const std::string& layer : found) {
    spec->layers[layer] = {.rank = spec->rank, .scale = spec->scale()};
  }
  return OkStatus();
}

Status CheckMagnitudes(const LoraSpec& spec, const std::string& layer, bool rows_are_shared) {
  if (!spec.magnitudes || !rows_are_shared) return OkStatus();
  return UnimplementedError("DoRA of " + LastName(layer) +
                            ", with rows sharded over tensor ranks, is not built");
}

Status CheckUnquantized(const LoraSpec& spec, const std::vector<std::string>& parameters) {
  const std::set<std::string> left(parameters.begin(), parameters.end());
  for (const auto& [name, stored] : spec.full) {
    if (left.contains(name)) continue;
    return UnimplementedError("--quantize_base: the adapter has " + name +
                              " in full, to train it; train without --quantize_base");
  }
  return OkStatus();
}

bool FrozenNames::Freezes(const std::string& name) {
  // The example is the longest name, which belongs to a layer.
  if (name.size() > example_.size() || (name.size() == example_.size() && name < example_)) {
    example_ = name;
  }
  bool matches = false;
  for (const std::string& pattern : patterns_) {
    if (::fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
    unmatched_.erase(pattern);
    matches = true;
  }
  return matches;
}

Status FrozenNames::Check(bool trains) const {
  for (const std::string& pattern : patterns_) {
    if (!unmatched_.contains(pattern)) continue;
    return InvalidArgumentError("no parameter of the model matches " + pattern +
                                "; their names are like " + example_);
  }
  if (trains) return OkStatus();
  return InvalidArgumentError("every parameter is frozen: nothing is left to train");
}

}  // namespace ds::models
