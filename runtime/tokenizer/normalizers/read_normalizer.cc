#include <functional>
#include <vector>

#include "runtime/tokenizer/normalizers/charsmap.h"
#include "runtime/tokenizer/normalizers/normalizer.h"
#include "runtime/tokenizer/text/byte_letters.h"
#include "runtime/tokenizer/text/characters.h"
#include "runtime/tokenizer/text/normal_form.h"
#include "runtime/tokenizer/text/pattern.h"

namespace ds::tokenizer {
namespace {

using MadeNormalizer = StatusOr<std::unique_ptr<Normalizer>>;

// A normalizer that cannot fail and needs no class of its own.
class SimpleNormalizer final : public Normalizer {
 public:
  explicit SimpleNormalizer(std::function<void(AlignedText*)> apply) : apply_(std::move(apply)) {}
  Status Apply(AlignedText* text) const override { return (apply_(text), OkStatus()); }

 private:
  std::function<void(AlignedText*)> apply_;
};

MadeNormalizer Simple(std::function<void(AlignedText*)> apply) {
  return std::unique_ptr<Normalizer>(std::make_unique<SimpleNormalizer>(std::move(apply)));
}

MadeNormalizer Form(NormalForm form) {
  return Simple([form](AlignedText* text) { Normalize(form, text); });
}

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Status Apply(AlignedText* text) const override {
    std::vector<Match> matches;
    DS_RETURN_IF_ERROR(pattern_.FindMatches(text->text(), &matches));
    const bool none = matches.size() == 1 && !matches[0].matched;
    if (!none) text->Replace(matches, content_);
    return OkStatus();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}

  Status Apply(AlignedText* text) const override {
    for (const auto& part : parts_) DS_RETURN_IF_ERROR(part->Apply(text));
    return OkStatus();
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

void ToLowerCase(AlignedText* text) {
  std::vector<Edit> edits;
  edits.reserve(text->size());
  ForEachCharacter(text->text(), [&](char32_t c) {
    int inserted = 0;
    ForEachLowerCase(c, [&](char32_t lower) { edits.push_back({lower, inserted++ > 0 ? 1 : 0}); });
  });
  text->Transform(edits, 0);
}

struct BertSettings {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

bool IsKeptByBert(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return true;
  return c != 0 && c != 0xFFFD && !IsOther(c);
}

void SeparateChinese(AlignedText* text) {
  if (IsAscii(text->text())) return;
  std::vector<Edit> edits;
  ForEachCharacter(text->text(), [&](char32_t c) {
    if (IsChinese(c)) {
      edits.insert(edits.end(), {{U' ', 0}, {c, 1}, {U' ', 1}});
    } else {
      edits.push_back({c, 0});
    }
  });
  text->Transform(edits, 0);
}

// BERT's cleaning: removes control characters and accents, normalizes blanks, puts blanks around
// Chinese characters, and converts to lower case.
class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(BertSettings settings) : settings_(settings) {}

  Status Apply(AlignedText* text) const override {
    if (settings_.clean_text) {
      text->Filter(IsKeptByBert);
      text->Map([](char32_t c) { return IsWhiteSpace(c) ? U' ' : c; });
    }
    if (settings_.handle_chinese_chars) SeparateChinese(text);
    if (settings_.strip_accents && !IsAscii(text->text())) {
      Normalize(NormalForm::kD, text);
      text->Filter([](char32_t c) { return !IsNonspacingMark(c); });
    }
    if (settings_.lowercase) ToLowerCase(text);
    return OkStatus();
  }

 private:
  BertSettings settings_;
};

// Implements SentencePiece's NMT rules for control characters and blanks.
bool IsKeptByNmt(char32_t c) {
  return !((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F);
}

bool IsBlankForNmt(char32_t c) {
  return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
         c == 0xFFFD;
}

void ApplyNmt(AlignedText* text) {
  text->Filter(IsKeptByNmt);
  text->Map([](char32_t c) { return IsBlankForNmt(c) ? U' ' : c; });
}

MadeNormalizer ReadNormalizerSequence(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const auto objects, component.Objects("normalizers"));
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const JsonObject& object : objects) {
    DS_ASSIGN_OR_RETURN(auto part, ReadNormalizer(object));
    parts.push_back(std::move(part));
  }
  return std::unique_ptr<Normalizer>(std::make_unique<NormalizerSequence>(std::move(parts)));
}

MadeNormalizer ReadBertNormalizer(const JsonObject& component) {
  BertSettings settings;
  DS_ASSIGN_OR_RETURN(settings.clean_text, component.Flag("clean_text"));
  DS_ASSIGN_OR_RETURN(settings.handle_chinese_chars, component.Flag("handle_chinese_chars"));
  DS_ASSIGN_OR_RETURN(settings.lowercase, component.Flag("lowercase"));
  DS_ASSIGN_OR_RETURN(settings.strip_accents,
                      component.FlagOr("strip_accents", settings.lowercase));
  return std::unique_ptr<Normalizer>(std::make_unique<BertNormalizer>(settings));
}

MadeNormalizer ReadReplace(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(component));
  DS_ASSIGN_OR_RETURN(std::string content, component.Text("content"));
  return std::unique_ptr<Normalizer>(
      std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content)));
}

MadeNormalizer ReadStrip(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const bool left, component.Flag("strip_left"));
  DS_ASSIGN_OR_RETURN(const bool right, component.Flag("strip_right"));
  return Simple([left, right](AlignedText* text) { text->Strip(left, right); });
}

MadeNormalizer ReadPrepend(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const std::string prefix, component.Text("prepend"));
  return Simple([prefix](AlignedText* text) { text->Prepend(prefix); });
}

MadeNormalizer StripAccents() {
  return Simple([](AlignedText* text) {
    if (!IsAscii(text->text())) text->Filter([](char32_t c) { return !IsCombiningMark(c); });
  });
}

}  // namespace

MadeNormalizer ReadNormalizer(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const std::string type, TypeOf(component));
  if (type == "NFC") return Form(NormalForm::kC);
  if (type == "NFD") return Form(NormalForm::kD);
  if (type == "NFKC") return Form(NormalForm::kKc);
  if (type == "NFKD") return Form(NormalForm::kKd);
  if (type == "Lowercase") return Simple(ToLowerCase);
  if (type == "StripAccents") return StripAccents();
  if (type == "Nmt") return Simple(ApplyNmt);
  if (type == "Strip") return ReadStrip(component);
  if (type == "Prepend") return ReadPrepend(component);
  if (type == "Replace") return ReadReplace(component);
  if (type == "BertNormalizer") return ReadBertNormalizer(component);
  if (type == "Precompiled") return ReadPrecompiled(component);
  if (type == "Sequence") return ReadNormalizerSequence(component);
  if (type == "ByteLevel") {
    return Simple([](AlignedText* text) { text->BytesToLetters(ByteLetters()); });
  }
  return UnknownType(component, "normalizer", type);
}

}  // namespace ds::tokenizer
