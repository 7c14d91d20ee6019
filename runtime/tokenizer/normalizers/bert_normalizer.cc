#include "runtime/tokenizer/normalizers/bert_normalizer.h"

#include "runtime/tokenizer/text/characters.h"
#include "runtime/tokenizer/text/normal_form.h"

namespace ds::tokenizer {
namespace {

struct BertSettings {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

bool IsKept(char32_t c) {
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

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(BertSettings settings) : settings_(settings) {}

  Status Apply(AlignedText* text) const override {
    if (settings_.clean_text) {
      text->Filter(IsKept);
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

}  // namespace

void ToLowerCase(AlignedText* text) {
  std::vector<Edit> edits;
  edits.reserve(text->size());
  ForEachCharacter(text->text(), [&](char32_t c) {
    int inserted = 0;
    ForEachLowerCase(c, [&](char32_t lower) { edits.push_back({lower, inserted++ > 0 ? 1 : 0}); });
  });
  text->Transform(edits, 0);
}

StatusOr<std::unique_ptr<Normalizer>> ReadBertNormalizer(const JsonObject& component) {
  BertSettings settings;
  DS_ASSIGN_OR_RETURN(settings.clean_text, component.Flag("clean_text"));
  DS_ASSIGN_OR_RETURN(settings.handle_chinese_chars, component.Flag("handle_chinese_chars"));
  DS_ASSIGN_OR_RETURN(settings.lowercase, component.Flag("lowercase"));
  DS_ASSIGN_OR_RETURN(settings.strip_accents,
                      component.FlagOr("strip_accents", settings.lowercase));
  return std::unique_ptr<Normalizer>(std::make_unique<BertNormalizer>(settings));
}

}  // namespace ds::tokenizer
