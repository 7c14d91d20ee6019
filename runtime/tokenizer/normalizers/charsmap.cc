#include "runtime/tokenizer/normalizers/charsmap.h"

#include <utf8proc.h>

#include <array>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

constexpr std::size_t kMostClusterBytes = 6;  // larger clusters are processed by character

std::uint32_t LittleEndian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) {
    value = (value << 8) | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  }
  return value;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  if (text.size() % 4 != 0) return std::nullopt;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>((bits >> count) & 0xFF);
    }
  }
  return bytes;
}

// Returns the bytes of the first grapheme cluster.
std::size_t ClusterBytes(std::string_view text) {
  Utf8Character last = FirstUtf8Character(text);
  std::size_t bytes = last.length;
  utf8proc_int32_t state = 0;
  while (bytes < text.size()) {
    const Utf8Character next = FirstUtf8Character(text.substr(bytes));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code_point),
                                         static_cast<utf8proc_int32_t>(next.code_point),
                                         &state) != 0) {
      break;
    }
    bytes += next.length;
    last = next;
  }
  return bytes;
}

// Replaces `count` old characters by the characters of `text`.
void PutReplacement(std::string_view text, std::size_t count, std::vector<Edit>* edits) {
  const std::size_t first = edits->size();
  ForEachCharacter(text, [&](char32_t c) { edits->push_back({c, 0}); });
  const std::size_t added = edits->size() - first;
  if (added > count) {
    for (std::size_t i = first + count; i < edits->size(); ++i) (*edits)[i].shift = 1;
  } else if (added < count && !edits->empty()) {
    edits->back().shift -= static_cast<int>(count - added);
  }
}

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}

  Status Apply(AlignedText* text) const override {
    std::vector<Edit> edits;
    edits.reserve(text->size());
    bool modified = false;
    const auto replace = [&](std::string_view part) {
      const auto found = map_.FindShortest(part);
      if (!found) return false;
      PutReplacement(found->text, CountCharacters(part), &edits);
      modified = true;
      return true;
    };
    for (std::string_view rest = text->text(); !rest.empty();) {
      const std::string_view cluster = rest.substr(0, ClusterBytes(rest));
      rest.remove_prefix(cluster.size());
      if (cluster.size() < kMostClusterBytes && replace(cluster)) continue;
      for (std::size_t at = 0; at < cluster.size();) {
        const std::string_view character = cluster.substr(at, Utf8Length(cluster[at]));
        at += character.size();
        if (!replace(character)) edits.push_back({FirstUtf8Character(character).code_point, 0});
      }
    }
    if (modified) text->Transform(edits, 0);
    return OkStatus();
  }

 private:
  Charsmap map_;
};

}  // namespace

StatusOr<Charsmap> Charsmap::Parse(std::string_view bytes) {
  Charsmap map;
  if (bytes.empty()) return map;
  if (bytes.size() < 4) return InvalidArgumentError("the charsmap has no size");
  const std::uint32_t size = LittleEndian(bytes);
  bytes.remove_prefix(4);
  if (size > bytes.size() || size % 4 != 0 || size == 0) {
    return InvalidArgumentError("the charsmap claims that its array has " + std::to_string(size) +
                                " bytes of the " + std::to_string(bytes.size()) + " there are");
  }
  for (std::uint32_t at = 0; at < size; at += 4) {
    map.units_.push_back(LittleEndian(bytes.substr(at)));
  }
  map.replacements_ = bytes.substr(size);
  if (ValidUtf8Prefix(map.replacements_) != map.replacements_.size()) {
    return InvalidArgumentError("the replacements of the charsmap are no UTF-8");
  }
  return map;
}

// The units have darts-clone's format: a label in the low byte, the offset to the children above
// it, and bit 8 for "an entry ends here". The value is in the unit at that offset.
template <typename Use>
void Charsmap::ForEachPrefix(std::string_view text, Use use) const {
  const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); };
  if (units_.empty()) return;
  std::size_t at = offset(units_[0]);
  for (std::size_t i = 0; i < text.size() && text[i] != 0; ++i) {
    at ^= static_cast<unsigned char>(text[i]);
    if (at >= units_.size()) return;
    const std::uint32_t unit = units_[at];
    if ((unit & 0x800000FFU) != static_cast<unsigned char>(text[i])) return;
    at ^= offset(unit);
    if (at >= units_.size()) return;
    if ((unit & 0x100U) != 0 && !use(i + 1, units_[at] & 0x7FFFFFFFU)) return;
  }
}

std::string_view Charsmap::ReplacementAt(std::uint32_t offset) const {
  if (offset >= replacements_.size()) return {};
  std::string_view text = std::string_view(replacements_).substr(offset);
  // SentencePiece writes no offset into the middle of a character.
  if ((static_cast<unsigned char>(text.front()) & 0xC0) == 0x80) return {};
  return text.substr(0, text.find('\0'));
}

std::optional<Charsmap::Replacement> Charsmap::FindShortest(std::string_view text) const {
  std::optional<Replacement> found;
  ForEachPrefix(text, [&](std::size_t length, std::uint32_t offset) {
    found = Replacement{length, ReplacementAt(offset)};
    return false;
  });
  return found;
}

std::optional<Charsmap::Replacement> Charsmap::FindLongest(std::string_view text) const {
  std::optional<Replacement> found;
  ForEachPrefix(text, [&](std::size_t length, std::uint32_t offset) {
    found = Replacement{length, ReplacementAt(offset)};
    return true;
  });
  return found;
}

StatusOr<std::unique_ptr<Normalizer>> ReadPrecompiled(const JsonObject& component) {
  DS_ASSIGN_OR_RETURN(const std::string text, component.TextOr("precompiled_charsmap", ""));
  const std::optional<std::string> bytes = DecodeBase64(text);
  if (!bytes) return component.Error("precompiled_charsmap", "is no base64");
  auto map = Charsmap::Parse(*bytes);
  if (!map.ok()) {
    return component.Error("precompiled_charsmap", "is damaged: " + map.status().message());
  }
  return std::unique_ptr<Normalizer>(std::make_unique<Precompiled>(*std::move(map)));
}

}  // namespace ds::tokenizer
