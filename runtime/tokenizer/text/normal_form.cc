#include "runtime/tokenizer/text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

// A decomposed character, and its position relative to the old text.
struct Mark {
  Edit edit;
  int combining_class = 0;
};

int CombiningClass(char32_t character) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(character))->combining_class;
}

std::vector<Mark> Decompose(std::string_view text, bool compatible) {
  std::vector<Mark> marks;
  marks.reserve(text.size());
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::size_t run = 0;  // beginning of the marks to be reordered
  const auto sort_run = [&] {
    std::stable_sort(
        marks.begin() + static_cast<std::ptrdiff_t>(run), marks.end(),
        [](const Mark& a, const Mark& b) { return a.combining_class < b.combining_class; });
  };
  ForEachCharacter(text, [&](char32_t character) {
    utf8proc_int32_t parts[32];
    int boundary = 0;
    utf8proc_ssize_t count = 1;
    if (character < 0x80) {
      parts[0] = static_cast<utf8proc_int32_t>(character);
    } else {
      count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character), parts, 32, options,
                                      &boundary);
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const auto part = static_cast<char32_t>(parts[i]);
      const int combining_class = part < 0x80 ? 0 : CombiningClass(part);
      if (combining_class == 0) {
        sort_run();
        run = marks.size();
      }
      marks.push_back({{part, i > 0 ? 1 : 0}, combining_class});
    }
  });
  sort_run();
  return marks;
}

constexpr char32_t kHangulBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28;

std::optional<char32_t> ComposeHangul(char32_t a, char32_t b) {
  if (a >= kLBase && a < kLBase + kLCount && b >= kVBase && b < kVBase + kVCount) {
    return kHangulBase + ((a - kLBase) * kVCount + (b - kVBase)) * kTCount;
  }
  const bool is_lv = a >= kHangulBase && a < kHangulBase + kLCount * kVCount * kTCount &&
                     (a - kHangulBase) % kTCount == 0;
  if (is_lv && b > kTBase && b < kTBase + kTCount) return a + (b - kTBase);
  return std::nullopt;
}

std::optional<char32_t> Compose(char32_t a, char32_t b) {
  if (b < 0x80) return std::nullopt;
  if (const auto hangul = ComposeHangul(a, b)) return hangul;
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(a), static_cast<utf8proc_int32_t>(b)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  if (utf8proc_normalize_utf32(pair, 2, options) != 1) return std::nullopt;
  return static_cast<char32_t>(pair[0]);
}

// Composes the decomposed characters; the shift of a composed character counts the characters that
// it absorbed.
std::vector<Edit> Recompose(const std::vector<Mark>& marks) {
  std::vector<Edit> edits;
  edits.reserve(marks.size());
  std::optional<std::size_t> starter;  // in edits
  int last_class = -1;                 // of a mark between the starter and here; -1: none
  for (const Mark& mark : marks) {
    const bool blocked = last_class >= mark.combining_class && last_class != -1;
    if (starter && !blocked) {
      if (const auto composed = Compose(edits[*starter].code_point, mark.edit.code_point)) {
        edits[*starter].code_point = *composed;
        edits[*starter].shift += mark.edit.shift - 1;
        continue;
      }
    }
    edits.push_back(mark.edit);
    if (mark.combining_class == 0) {
      starter = edits.size() - 1;
      last_class = -1;
    } else if (starter) {
      last_class = mark.combining_class;
    }
  }
  return edits;
}

}  // namespace

void Normalize(NormalForm form, AlignedText* text) {
  if (IsAscii(text->text())) return;
  const bool compatible = form == NormalForm::kKc || form == NormalForm::kKd;
  const std::vector<Mark> marks = Decompose(text->text(), compatible);
  if (form == NormalForm::kC || form == NormalForm::kKc) {
    text->Transform(Recompose(marks), 0);
    return;
  }
  std::vector<Edit> edits;
  edits.reserve(marks.size());
  for (const Mark& mark : marks) edits.push_back(mark.edit);
  text->Transform(edits, 0);
}

}  // namespace ds::tokenizer
