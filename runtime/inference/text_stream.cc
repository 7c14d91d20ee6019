#include "runtime/inference/text_stream.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/utf8.h"

namespace ds::inference {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Converts bytes to text: each byte that is not valid UTF-8 becomes U+FFFD. Tokens that are not
// bytes have no text.
std::string TextOfBytes(const std::vector<std::uint32_t>& ids) {
  std::string all;
  for (const std::uint32_t id : ids) {
    if (id < 256) all += static_cast<char>(id);
  }
  std::string text;
  for (std::string_view rest = all; !rest.empty();) {
    const std::size_t valid = ValidUtf8Prefix(rest);
    text += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    text += kReplacement;
    rest.remove_prefix(1);
  }
  return text;
}

// Returns the start of the replacement characters at the end of a text: they may be part of an
// unfinished character.
std::size_t CertainEnd(std::string_view text) {
  while (text.ends_with(kReplacement)) text.remove_suffix(kReplacement.size());
  return text.size();
}

}  // namespace

StatusOr<std::string> TextStream::Text() const {
  if (tokenizer_ == nullptr) return TextOfBytes(ids_);
  return tokenizer_->Decode(ids_, /*skip_special_tokens=*/true);
}

// Returns the text up to `end` that was not returned before. If a decoder changes earlier text, the
// returned text stays as it is.
std::string TextStream::TakeUpTo(const std::string& text, std::size_t end) {
  if (end <= shown_.size()) return "";
  std::string piece = text.substr(shown_.size(), end - shown_.size());
  shown_ = text.substr(0, end);
  return piece;
}

StatusOr<std::string> TextStream::Add(std::int64_t token) {
  ids_.push_back(static_cast<std::uint32_t>(token));
  DS_ASSIGN_OR_RETURN(const std::string text, Text());
  return TakeUpTo(text, CertainEnd(text));
}

StatusOr<std::string> TextStream::Finish() {
  DS_ASSIGN_OR_RETURN(const std::string text, Text());
  return TakeUpTo(text, text.size());
}

}  // namespace ds::inference
