#pragma once

// Pattern is the pattern of a Replace or Split, a text or a regular expression, in the notation of
// a tokenizer.json: {"String": " "} or {"Regex": "\\s+"}.

#include <optional>

#include "runtime/tokenizer/text/json_object.h"
#include "runtime/tokenizer/text/regex.h"

namespace ds::tokenizer {

class Pattern {
 public:
  static Pattern OfText(std::string text);
  static StatusOr<Pattern> OfRegex(std::string_view regex);

  // Does the same as Regex::FindMatches.
  Status FindMatches(std::string_view text, std::vector<Match>* matches) const;

 private:
  Pattern() = default;
  std::string text_;
  std::optional<Regex> regex_;
};

// Reads the component's "pattern".
StatusOr<Pattern> ReadPattern(const JsonObject& component);

}  // namespace ds::tokenizer
