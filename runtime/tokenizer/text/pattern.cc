#include "runtime/tokenizer/text/pattern.h"

namespace ds::tokenizer {

Pattern Pattern::OfText(std::string text) {
  Pattern pattern;
  pattern.text_ = std::move(text);
  return pattern;
}

StatusOr<Pattern> Pattern::OfRegex(std::string_view regex) {
  Pattern pattern;
  DS_ASSIGN_OR_RETURN(pattern.regex_, Regex::Compile(regex));
  return pattern;
}

Status Pattern::FindMatches(std::string_view text, std::vector<Match>* matches) const {
  if (regex_) return regex_->FindMatches(text, matches);
  matches->clear();
  const auto size = static_cast<std::uint32_t>(text.size());
  std::uint32_t covered = 0;
  while (true) {
    const std::size_t found = text.find(text_, covered);
    if (found == std::string_view::npos) break;
    const auto begin = static_cast<std::uint32_t>(found);
    if (begin != covered) matches->push_back({covered, begin, false});
    covered = begin + static_cast<std::uint32_t>(text_.size());
    matches->push_back({begin, covered, true});
  }
  if (covered != size || size == 0) matches->push_back({covered, size, false});
  return OkStatus();
}

StatusOr<Pattern> ReadPattern(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const JsonObject pattern, component.Object("pattern"));
  if (pattern.Find("String") != nullptr) {
    DS_ASSIGN_OR_RETURN(std::string text, pattern.Text("String"));
    if (text.empty()) return pattern.Error("String", "must not be empty");
    return Pattern::OfText(std::move(text));
  }
  DS_ASSIGN_OR_RETURN(const std::string regex, pattern.Text("Regex"));
  auto made = Pattern::OfRegex(regex);
  if (!made.ok()) return made.status().WithContext(pattern.Where("Regex"));
  return *std::move(made);
}

}  // namespace ds::tokenizer
