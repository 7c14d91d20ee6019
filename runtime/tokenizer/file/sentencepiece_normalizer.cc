#include "runtime/tokenizer/file/sentencepiece_normalizer.h"

#include <algorithm>

#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

constexpr std::string_view kEscapedBlank = "\xE2\x96\x81";  // U+2581

// The longest symbol that a text begins with: its length, 0 when there is none, and its id.
std::pair<std::size_t, std::uint32_t> LongestSymbol(const ByteTrie& symbols,
                                                    std::string_view text) {
  std::pair<std::size_t, std::uint32_t> found{0, 0};
  symbols.ForEachPrefix(text, [&](std::size_t length, std::uint32_t id) { found = {length, id}; });
  return found;
}

class SentencePieceNormalizer final : public Normalizer {
 public:
  SentencePieceNormalizer(Charsmap map, BlankRules rules, std::shared_ptr<const ByteTrie> symbols)
      : map_(std::move(map)),
        rules_(rules),
        symbols_(std::move(symbols)),
        blank_(rules.escape_blanks ? kEscapedBlank : " ") {}

  Status Apply(AlignedText* text) const override {
    std::vector<AlignedText::Rewritten> out;
    const std::string& old = text->text();
    std::uint32_t at = 0;
    while (rules_.remove_extra_blanks && at < old.size()) {
      const AlignedText::Rewritten next = Next(old, at);
      if (next.text != " ") break;
      at = next.end;
    }
    if (at >= old.size()) {
      text->Rewrite({});
      return OkStatus();
    }
    if (rules_.add_dummy_prefix && !rules_.blanks_as_suffix) out.push_back({blank_, at, at});
    bool after_blank = rules_.remove_extra_blanks;
    while (at < old.size()) {
      AlignedText::Rewritten next = Next(old, at);
      at = next.end;
      while (after_blank && next.text.starts_with(' ')) next.text.erase(0, 1);
      if (!next.text.empty()) after_blank = next.text.ends_with(' ');
      if (!rules_.remove_extra_blanks) after_blank = false;
      Escape(&next.text);
      out.push_back(std::move(next));
    }
    while (rules_.remove_extra_blanks && !out.empty() &&
           (out.back().text.empty() || out.back().text.ends_with(blank_))) {
      std::string& last = out.back().text;
      if (last.ends_with(blank_)) last.resize(last.size() - blank_.size());
      if (last.empty()) out.pop_back();
    }
    if (rules_.add_dummy_prefix && rules_.blanks_as_suffix) out.push_back({blank_, at, at});
    text->Rewrite(out);
    return OkStatus();
  }

 private:
  // What the text goes on with: a symbol, what the table replaces, or a character.
  AlignedText::Rewritten Next(const std::string& text, std::uint32_t at) const {
    const std::string_view rest = std::string_view(text).substr(at);
    const auto made = [&](std::string_view with, std::size_t length) {
      return AlignedText::Rewritten{std::string(with), at, at + static_cast<std::uint32_t>(length)};
    };
    if (const std::size_t length = LongestSymbol(*symbols_, rest).first; length > 0) {
      return made(rest.substr(0, length), length);
    }
    if (const auto found = map_.FindLongest(rest)) return made(found->text, found->length);
    const std::size_t length = Utf8Length(rest.front());
    return made(rest.substr(0, length), length);
  }

  void Escape(std::string* text) const {
    if (!rules_.escape_blanks) return;
    for (std::size_t i = text->find(' '); i != std::string::npos; i = text->find(' ', i)) {
      text->replace(i, 1, kEscapedBlank);
    }
  }

  Charsmap map_;
  BlankRules rules_;
  std::shared_ptr<const ByteTrie> symbols_;
  std::string blank_;
};

class SymbolSplit final : public PreTokenizer {
 public:
  explicit SymbolSplit(std::shared_ptr<const ByteTrie> symbols) : symbols_(std::move(symbols)) {}

  Status Apply(Words* words) const override {
    words->SplitTokens([this](std::string_view text) { return LongestSymbol(*symbols_, text); });
    return OkStatus();
  }

 private:
  std::shared_ptr<const ByteTrie> symbols_;
};

}  // namespace

std::unique_ptr<Normalizer> MakeSentencePieceNormalizer(Charsmap map, BlankRules rules,
                                                        std::shared_ptr<const ByteTrie> symbols) {
  return std::make_unique<SentencePieceNormalizer>(std::move(map), rules, std::move(symbols));
}

std::unique_ptr<PreTokenizer> MakeSymbolSplit(std::shared_ptr<const ByteTrie> symbols) {
  return std::make_unique<SymbolSplit>(std::move(symbols));
}

}  // namespace ds::tokenizer
