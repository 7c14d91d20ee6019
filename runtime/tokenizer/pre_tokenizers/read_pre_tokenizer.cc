#include "runtime/base/utf8.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenizer.h"
#include "runtime/tokenizer/text/byte_letters.h"
#include "runtime/tokenizer/text/characters.h"
#include "runtime/tokenizer/text/pattern.h"

namespace ds::tokenizer {
namespace {

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

// GPT-2's words (openai/gpt-2, encoder.py).
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Words and punctuation as in Rust's regular expressions.
constexpr std::string_view kWhitespacePattern = R"([\w\p{Join_Control}]+|[^\w\s\p{Join_Control}]+)";

// Splits at the matches of a pattern or a class of characters.
class SplitStep final : public PreTokenizer {
 public:
  SplitStep(FindMatches find, SplitBehavior behavior, bool invert)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}
  SplitStep(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {
    find_ = [this](std::string_view word, std::vector<Match>* matches) {
      return pattern_->FindMatches(word, matches);
    };
  }

  Status Apply(PreTokenizedText* words) const override {
    return words->Split(find_, behavior_, invert_);
  }

 private:
  std::optional<Pattern> pattern_;
  FindMatches find_;
  SplitBehavior behavior_;
  bool invert_;
};

// Adds a blank before words that do not begin with one.
class PrefixSpaceStep final : public PreTokenizer {
 public:
  Status Apply(PreTokenizedText* words) const override {
    words->Rewrite([](AlignedText* word, bool) {
      if (!word->text().starts_with(' ')) word->Prepend(" ");
    });
    return OkStatus();
  }
};

class LettersStep final : public PreTokenizer {
 public:
  Status Apply(PreTokenizedText* words) const override {
    words->Rewrite([](AlignedText* word, bool) { word->BytesToLetters(ByteLetters()); });
    return OkStatus();
  }
  bool PutsLetters() const override { return true; }
};

// Replaces every blank by a visible character, and adds it before words that do not begin with it.
class MetaspaceStep final : public PreTokenizer {
 public:
  MetaspaceStep(std::string replacement, PrependScheme scheme, bool split)
      : blank_(Pattern::OfText(" ")),
        mark_(Pattern::OfText(replacement)),
        replacement_(std::move(replacement)),
        scheme_(scheme),
        split_(split) {}

  Status Apply(PreTokenizedText* words) const override {
    std::vector<Match> matches;
    words->Rewrite([&](AlignedText* word, bool first) {
      (void)blank_.FindMatches(word->text(), &matches).ok();  // searching for a text cannot fail
      word->Replace(matches, replacement_);
      const bool wanted =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && first);
      if (wanted && !word->text().starts_with(replacement_)) word->Prepend(replacement_);
    });
    if (!split_) return OkStatus();
    const auto find = [this](std::string_view word, std::vector<Match>* found) {
      return mark_.FindMatches(word, found);
    };
    return words->Split(find, SplitBehavior::kMergedWithNext, false);
  }
  bool NeedsOrigins() const override { return scheme_ == PrependScheme::kFirst; }

 private:
  Pattern blank_, mark_;
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

StatusOr<SplitBehavior> ReadBehavior(const JsonObject& component, const std::string& otherwise) {
  DS_ASSIGN_OR_RETURN(const std::string name, component.TextOr("behavior", otherwise));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return component.Error("behavior", "is not supported: '" + name + "'");
}

template <typename Find>
Status AddSplit(Find find, SplitBehavior behavior, bool invert, Steps* steps) {
  steps->push_back(std::make_unique<SplitStep>(std::move(find), behavior, invert));
  return OkStatus();
}

Status AddByteLevel(const JsonObject& component, Steps* steps) {
  DS_ASSIGN_OR_RETURN(const bool prefix, component.Flag("add_prefix_space"));
  DS_ASSIGN_OR_RETURN(const bool use_regex, component.FlagOr("use_regex", true));
  if (prefix) steps->push_back(std::make_unique<PrefixSpaceStep>());
  if (use_regex) {
    DS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::OfRegex(kGpt2Pattern));
    DS_RETURN_IF_ERROR(AddSplit(std::move(pattern), SplitBehavior::kIsolated, false, steps));
  }
  steps->push_back(std::make_unique<LettersStep>());
  return OkStatus();
}

Status AddMetaspace(const JsonObject& component, Steps* steps) {
  DS_ASSIGN_OR_RETURN(const char32_t mark, component.Character("replacement"));
  DS_ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(component));
  DS_ASSIGN_OR_RETURN(const bool split, component.FlagOr("split", true));
  std::string replacement;
  AppendUtf8(mark, &replacement);
  steps->push_back(std::make_unique<MetaspaceStep>(std::move(replacement), scheme, split));
  return OkStatus();
}

Status AddSplitComponent(const JsonObject& component, Steps* steps) {
  DS_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(component));
  DS_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(component, ""));
  DS_ASSIGN_OR_RETURN(const bool invert, component.Flag("invert"));
  return AddSplit(std::move(pattern), behavior, invert, steps);
}

Status AddDelimiter(const JsonObject& component, Steps* steps) {
  DS_ASSIGN_OR_RETURN(const char32_t delimiter, component.Character("delimiter"));
  std::string text;
  AppendUtf8(delimiter, &text);
  return AddSplit(Pattern::OfText(std::move(text)), SplitBehavior::kRemoved, false, steps);
}

Status AddSteps(const JsonObject& component, Steps* steps);

Status AddSequence(const JsonObject& component, Steps* steps) {
  DS_ASSIGN_OR_RETURN(const auto objects, component.Objects("pretokenizers"));
  for (const JsonObject& object : objects) DS_RETURN_IF_ERROR(AddSteps(object, steps));
  return OkStatus();
}

Status AddSteps(const JsonObject& component, Steps* steps) {
  DS_ASSIGN_OR_RETURN(const std::string type, TypeOf(component));
  if (type == "Sequence") return AddSequence(component, steps);
  if (type == "ByteLevel") return AddByteLevel(component, steps);
  if (type == "Metaspace") return AddMetaspace(component, steps);
  if (type == "Split") return AddSplitComponent(component, steps);
  if (type == "CharDelimiterSplit") return AddDelimiter(component, steps);
  if (type == "Whitespace") {
    DS_ASSIGN_OR_RETURN(Pattern pattern, Pattern::OfRegex(kWhitespacePattern));
    return AddSplit(std::move(pattern), SplitBehavior::kRemoved, true, steps);
  }
  if (type == "WhitespaceSplit") {
    return AddSplit(MatchCharacters(IsWhiteSpace), SplitBehavior::kRemoved, false, steps);
  }
  if (type == "Digits") {
    DS_ASSIGN_OR_RETURN(const bool single, component.Flag("individual_digits"));
    const auto behavior = single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    return AddSplit(MatchCharacters(IsNumeric), behavior, false, steps);
  }
  if (type == "Punctuation") {
    DS_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(component, "Isolated"));
    return AddSplit(MatchCharacters(IsPunctuation), behavior, false, steps);
  }
  if (type == "BertPreTokenizer") {
    DS_RETURN_IF_ERROR(
        AddSplit(MatchCharacters(IsWhiteSpace), SplitBehavior::kRemoved, false, steps));
    return AddSplit(MatchCharacters(IsPunctuation), SplitBehavior::kIsolated, false, steps);
  }
  return UnknownType(component, "pre-tokenizer", type);
}

}  // namespace

StatusOr<std::vector<std::unique_ptr<PreTokenizer>>> ReadPreTokenizer(const JsonObject& component) {
  Steps steps;
  DS_RETURN_IF_ERROR(AddSteps(component, &steps));
  return steps;
}

// Files of older versions use add_prefix_space instead.
StatusOr<PrependScheme> ReadPrependScheme(const JsonObject& metaspace) {
  DS_ASSIGN_OR_RETURN(const bool prefix, metaspace.FlagOr("add_prefix_space", true));
  DS_ASSIGN_OR_RETURN(const std::string name, metaspace.TextOr("prepend_scheme", "always"));
  if (name == "never" || (!prefix && metaspace.Find("prepend_scheme") == nullptr)) {
    return PrependScheme::kNever;
  }
  if (!prefix) return metaspace.Error("add_prefix_space", "contradicts prepend_scheme");
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  return metaspace.Error("prepend_scheme", "is not supported: '" + name + "'");
}

}  // namespace ds::tokenizer
