#include "runtime/tokenizer/text/aligned_text.h"

#include "runtime/base/utf8.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

// Returns the bytes of the first `count` characters from `at` on.
std::size_t CharacterBytes(std::string_view text, std::size_t at, std::size_t count) {
  std::size_t bytes = 0;
  for (; count > 0 && at + bytes < text.size(); --count) {
    bytes += Utf8Length(text[at + bytes]);
  }
  return bytes;
}

}  // namespace

AlignedText::AlignedText(std::string_view text, bool aligned) : text_(text), aligned_(aligned) {
  if (!aligned) return;
  origins_.reserve(text.size());
  for (std::uint32_t at = 0; at < text.size();) {
    const auto length = static_cast<std::uint32_t>(Utf8Length(text[at]));
    origins_.insert(origins_.end(), length, Span{at, at + length});
    at += length;
  }
}

AlignedText AlignedText::Slice(std::uint32_t begin, std::uint32_t end) const {
  AlignedText slice;
  slice.text_ = text_.substr(begin, end - begin);
  slice.aligned_ = aligned_;
  if (aligned_) slice.origins_.assign(origins_.begin() + begin, origins_.begin() + end);
  return slice;
}

void AlignedText::Append(const AlignedText& more) {
  text_ += more.text_;
  aligned_ = aligned_ || more.aligned_;
  origins_.insert(origins_.end(), more.origins_.begin(), more.origins_.end());
}

void AlignedText::Transform(const std::vector<Edit>& edits, std::size_t removed_at_start) {
  std::string text;
  text.reserve(text_.size());
  if (!aligned_) {
    for (const Edit& edit : edits) AppendUtf8(edit.code_point, &text);
    text_ = std::move(text);
    return;
  }
  std::vector<Span> origins;
  origins.reserve(origins_.size());
  std::size_t old = CharacterBytes(text_, 0, removed_at_start);  // the next old character
  for (const Edit& edit : edits) {
    const std::size_t before = text.size();
    AppendUtf8(edit.code_point, &text);
    Span origin;
    if (edit.shift > 0) {
      if (old > 0) origin = origins_[old - 1];
    } else {
      if (old < origins_.size()) origin = origins_[old];
      old += CharacterBytes(text_, old, 1 + static_cast<std::size_t>(-edit.shift));
    }
    origins.insert(origins.end(), text.size() - before, origin);
  }
  text_ = std::move(text);
  origins_ = std::move(origins);
}

void AlignedText::Filter(const std::function<bool(char32_t)>& keep) {
  std::vector<Edit> edits;
  edits.reserve(text_.size());
  int removed = 0;
  std::size_t removed_at_start = 0;
  ForEachCharacter(text_, [&](char32_t character) {
    if (!keep(character)) {
      ++removed;
      return;
    }
    if (edits.empty()) {
      removed_at_start = static_cast<std::size_t>(removed);
    } else {
      edits.back().shift = -removed;
    }
    removed = 0;
    edits.push_back({character, 0});
  });
  if (edits.size() == text_.size()) return;  // nothing was removed
  if (!edits.empty()) edits.back().shift = -removed;
  Transform(edits, removed_at_start);
}

void AlignedText::Map(const std::function<char32_t(char32_t)>& map) {
  std::vector<Edit> edits;
  edits.reserve(text_.size());
  ForEachCharacter(text_, [&](char32_t character) { edits.push_back({map(character), 0}); });
  Transform(edits, 0);
}

void AlignedText::Prepend(std::string_view prefix) {
  if (text_.empty()) return;
  if (aligned_) origins_.insert(origins_.begin(), prefix.size(), origins_.front());
  text_.insert(0, prefix);
}

void AlignedText::Replace(const std::vector<Match>& matches, std::string_view content) {
  std::string text;
  std::vector<Span> origins;
  for (const Match& match : matches) {
    if (!match.matched) {
      text.append(text_, match.begin, match.end - match.begin);
      if (aligned_) {
        origins.insert(origins.end(), origins_.begin() + match.begin, origins_.begin() + match.end);
      }
      continue;
    }
    text += content;
    if (aligned_) {
      const Span origin = match.end > 0 ? origins_[match.end - 1] : Span{};
      origins.insert(origins.end(), content.size(), origin);
    }
  }
  text_ = std::move(text);
  origins_ = std::move(origins);
}

void AlignedText::Rewrite(const std::vector<Rewritten>& rewritten) {
  std::string text;
  std::vector<Span> origins;
  for (const Rewritten& each : rewritten) {
    text += each.text;
    if (!aligned_) continue;
    Span origin;
    if (each.begin < each.end) origin = Origin(each.begin, each.end);
    if (each.begin == each.end && !origins_.empty()) {
      const bool is_end = each.begin == origins_.size();
      const std::uint32_t at = is_end ? origins_.back().end : origins_[each.begin].begin;
      origin = {at, at};
    }
    origins.insert(origins.end(), each.text.size(), origin);
  }
  text_ = std::move(text);
  origins_ = std::move(origins);
}

void AlignedText::Strip(bool left, bool right) {
  std::size_t begin = 0;
  std::size_t end = text_.size();
  while (left && begin < end) {
    const Utf8Character character = FirstUtf8Character(std::string_view(text_).substr(begin));
    if (!IsWhiteSpace(character.code_point)) break;
    begin += character.length;
  }
  while (right && begin < end) {
    std::size_t last = end - 1;
    while ((static_cast<unsigned char>(text_[last]) & 0xC0) == 0x80) --last;
    if (!IsWhiteSpace(FirstUtf8Character(std::string_view(text_).substr(last)).code_point)) break;
    end = last;
  }
  if (begin == 0 && end == text_.size()) return;
  *this = Slice(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end));
}

void AlignedText::BytesToLetters(const std::string (&letters)[256]) {
  std::string text;
  std::vector<Span> origins;
  text.reserve(2 * text_.size());
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const std::string& letter = letters[static_cast<unsigned char>(text_[i])];
    text += letter;
    if (aligned_) origins.insert(origins.end(), letter.size(), origins_[i]);
  }
  text_ = std::move(text);
  origins_ = std::move(origins);
}

}  // namespace ds::tokenizer
