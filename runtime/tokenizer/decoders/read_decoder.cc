#include <algorithm>
#include <functional>
#include <optional>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer/decoders/decoder.h"
#include "runtime/tokenizer/pre_tokenizers/pre_tokenizer.h"
#include "runtime/tokenizer/text/byte_letters.h"
#include "runtime/tokenizer/text/characters.h"
#include "runtime/tokenizer/text/pattern.h"

namespace ds::tokenizer {
namespace {

using Tokens = std::vector<std::string>;
using Decoders = std::vector<std::unique_ptr<Decoder>>;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

class DecoderStep final : public Decoder {
 public:
  explicit DecoderStep(std::function<Status(Tokens*)> apply) : apply_(std::move(apply)) {}
  Status Apply(Tokens* tokens) const override { return apply_(tokens); }

 private:
  std::function<Status(Tokens*)> apply_;
};

void ReplaceAll(std::string_view what, std::string_view with, std::string* text) {
  if (what.empty()) return;
  for (std::size_t at = text->find(what); at != std::string::npos;
       at = text->find(what, at + with.size())) {
    text->replace(at, what.size(), with);
  }
}

// Removes the blanks that tokenization adds between English words.
void CleanUp(std::string* text) {
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, with] : kPairs) ReplaceAll(what, with, text);
}

Status JoinLetters(Tokens* tokens) {
  std::string bytes;
  for (const std::string& token : *tokens) {
    const auto decoded = LettersToBytes(token);
    bytes += decoded ? *decoded : token;
  }
  *tokens = {ReplaceInvalidUtf8(bytes)};
  return OkStatus();
}

// Replaces consecutive byte tokens by the text that they spell, or each by a replacement character.
Status JoinByteTokens(Tokens* tokens) {
  Tokens joined;
  std::string bytes;
  const auto flush = [&] {
    if (ValidUtf8Prefix(bytes) == bytes.size()) {
      if (!bytes.empty()) joined.push_back(bytes);
    } else {
      joined.insert(joined.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (std::string& token : *tokens) {
    if (const auto byte = TokenByte(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    joined.push_back(std::move(token));
  }
  flush();
  *tokens = std::move(joined);
  return OkStatus();
}

Status Fuse(Tokens* tokens) {
  std::string all;
  for (const std::string& token : *tokens) all += token;
  *tokens = {all};
  return OkStatus();
}

Status AddDecoder(std::function<Status(Tokens*)> apply, Decoders* decoders) {
  decoders->push_back(std::make_unique<DecoderStep>(std::move(apply)));
  return OkStatus();
}

// The mark becomes a blank, except in the first token, where it was added before the text.
Status AddMetaspaceDecoder(const JsonObject& component, Decoders* decoders) {
  DS_ASSIGN_OR_RETURN(const char32_t mark, component.Character("replacement"));
  DS_ASSIGN_OR_RETURN(const PrependScheme scheme, ReadPrependScheme(component));
  std::string text;
  AppendUtf8(mark, &text);
  const bool prepends = scheme != PrependScheme::kNever;
  const auto apply = [text, prepends](Tokens* tokens) {
    for (std::size_t i = 0; i < tokens->size(); ++i) {
      ReplaceAll(text, i == 0 && prepends ? "" : " ", &(*tokens)[i]);
    }
    return OkStatus();
  };
  return AddDecoder(apply, decoders);
}

Status AddWordPieceDecoder(const JsonObject& component, Decoders* decoders) {
  DS_ASSIGN_OR_RETURN(const std::string prefix, component.Text("prefix"));
  DS_ASSIGN_OR_RETURN(const bool cleanup, component.Flag("cleanup"));
  const auto apply = [prefix, cleanup](Tokens* tokens) {
    for (std::size_t i = 0; i < tokens->size(); ++i) {
      std::string& token = (*tokens)[i];
      if (i > 0 && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else if (i > 0) {
        token.insert(0, " ");
      }
      if (cleanup) CleanUp(&token);
    }
    return OkStatus();
  };
  return AddDecoder(apply, decoders);
}

Status AddBpeDecoder(const JsonObject& component, Decoders* decoders) {
  DS_ASSIGN_OR_RETURN(const std::string suffix, component.Text("suffix"));
  const auto apply = [suffix](Tokens* tokens) {
    for (std::size_t i = 0; i < tokens->size(); ++i) {
      ReplaceAll(suffix, i + 1 == tokens->size() ? "" : " ", &(*tokens)[i]);
    }
    return OkStatus();
  };
  return AddDecoder(apply, decoders);
}

// Removes one character from the ends of every token, at most the given number of times.
Status AddStripDecoder(const JsonObject& component, Decoders* decoders) {
  DS_ASSIGN_OR_RETURN(const char32_t character, component.Character("content"));
  DS_ASSIGN_OR_RETURN(const std::uint32_t start, component.Number("start"));
  DS_ASSIGN_OR_RETURN(const std::uint32_t stop, component.Number("stop"));
  std::string text;
  AppendUtf8(character, &text);
  const auto apply = [text, start, stop](Tokens* tokens) {
    for (std::string& token : *tokens) {
      std::string_view rest = token;
      for (std::uint32_t i = 0; i < start && rest.starts_with(text); ++i) {
        rest.remove_prefix(text.size());
      }
      token.erase(0, token.size() - rest.size());
      for (std::uint32_t i = 0; i < stop && token.ends_with(text); ++i) {
        token.resize(token.size() - text.size());
      }
    }
    return OkStatus();
  };
  return AddDecoder(apply, decoders);
}

Status AddReplaceDecoder(const JsonObject& component, Decoders* decoders) {
  DS_ASSIGN_OR_RETURN(Pattern read, ReadPattern(component));
  DS_ASSIGN_OR_RETURN(const std::string content, component.Text("content"));
  const auto pattern = std::make_shared<Pattern>(std::move(read));
  const auto apply = [pattern, content](Tokens* tokens) -> Status {
    std::vector<Match> matches;
    for (std::string& token : *tokens) {
      DS_RETURN_IF_ERROR(pattern->FindMatches(token, &matches));
      AlignedText text(token, false);
      text.Replace(matches, content);
      token = text.text();
    }
    return OkStatus();
  };
  return AddDecoder(apply, decoders);
}

// For speech: merges repeated tokens; a pad token separates equal ones.
Status AddCtcDecoder(const JsonObject& component, Decoders* decoders) {
  DS_ASSIGN_OR_RETURN(const std::string pad, component.Text("pad_token"));
  DS_ASSIGN_OR_RETURN(const std::string delimiter, component.Text("word_delimiter_token"));
  DS_ASSIGN_OR_RETURN(const bool cleanup, component.Flag("cleanup"));
  const auto apply = [pad, delimiter, cleanup](Tokens* tokens) {
    Tokens kept;
    for (std::size_t i = 0; i < tokens->size(); ++i) {
      if (i > 0 && (*tokens)[i] == (*tokens)[i - 1]) continue;
      std::string token = (*tokens)[i];
      ReplaceAll(pad, "", &token);
      if (cleanup) {
        CleanUp(&token);
        ReplaceAll(delimiter, " ", &token);
      }
      if (!token.empty()) kept.push_back(std::move(token));
    }
    *tokens = std::move(kept);
    return OkStatus();
  };
  return AddDecoder(apply, decoders);
}

Status AddDecoders(const JsonObject& component, Decoders* decoders) {
  DS_ASSIGN_OR_RETURN(const std::string type, TypeOf(component));
  if (type == "ByteLevel") return AddDecoder(JoinLetters, decoders);
  if (type == "ByteFallback") return AddDecoder(JoinByteTokens, decoders);
  if (type == "Fuse") return AddDecoder(Fuse, decoders);
  if (type == "Metaspace") return AddMetaspaceDecoder(component, decoders);
  if (type == "WordPiece") return AddWordPieceDecoder(component, decoders);
  if (type == "BPEDecoder") return AddBpeDecoder(component, decoders);
  if (type == "Strip") return AddStripDecoder(component, decoders);
  if (type == "Replace") return AddReplaceDecoder(component, decoders);
  if (type == "CTC") return AddCtcDecoder(component, decoders);
  if (type != "Sequence") return UnknownType(component, "decoder", type);
  DS_ASSIGN_OR_RETURN(const auto objects, component.Objects("decoders"));
  for (const JsonObject& object : objects) DS_RETURN_IF_ERROR(AddDecoders(object, decoders));
  return OkStatus();
}

// Returns the number of bytes at the beginning of a damaged character that belong together.
std::size_t CountCutBytes(std::string_view bytes) {
  // If an ending completes the bytes to a character, they were valid so far.
  constexpr std::string_view kEnds[] = {"\x80", "\x80\x80"};
  for (std::size_t size = std::min<std::size_t>(3, bytes.size()); size > 1; --size) {
    for (const std::string_view end : kEnds) {
      const std::string completed = std::string(bytes.substr(0, size)) + std::string(end);
      if (ValidUtf8Prefix(completed) == completed.size()) return size;
    }
  }
  return 1;
}

}  // namespace

StatusOr<std::vector<std::unique_ptr<Decoder>>> ReadDecoder(const JsonObject& component) {
  Decoders decoders;
  DS_RETURN_IF_ERROR(AddDecoders(component, &decoders));
  return decoders;
}

// Writes one replacement for each longest prefix of a truncated character, and for each byte that
// begins no character.
std::string ReplaceInvalidUtf8(std::string_view bytes) {
  std::string text;
  while (true) {
    const std::size_t valid = ValidUtf8Prefix(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) return text;
    text += kReplacement;
    bytes.remove_prefix(CountCutBytes(bytes));
  }
}

}  // namespace ds::tokenizer
