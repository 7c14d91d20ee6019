#include "runtime/tokenizer/added_tokens.h"

#include <algorithm>

#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

char32_t LastCharacter(std::string_view text) {
  std::size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return FirstUtf8Character(text.substr(at)).code_point;
}

// Returns the beginning of the white space that ends at `end`, but not before `least`.
std::uint32_t SkipBlanksBack(std::string_view text, std::uint32_t least, std::uint32_t end) {
  while (end > least) {
    std::uint32_t at = end - 1;
    while (at > least && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!IsWhiteSpace(FirstUtf8Character(text.substr(at)).code_point)) break;
    end = at;
  }
  return end;
}

// Returns the end of the white space that begins at `at`.
std::uint32_t SkipBlanks(std::string_view text, std::uint32_t at) {
  while (at < text.size()) {
    const Utf8Character next = FirstUtf8Character(text.substr(at));
    if (!IsWhiteSpace(next.code_point)) break;
    at += static_cast<std::uint32_t>(next.length);
  }
  return at;
}

}  // namespace

StatusOr<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens,
                                          const Vocabulary& vocabulary,
                                          const Normalizer* normalizer) {
  AddedTokens added;
  auto next_id = static_cast<std::uint32_t>(vocabulary.size());
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    std::optional<std::uint32_t> id = added.Find(token.content);
    if (!id) id = vocabulary.Find(token.content);
    if (!id) id = next_id++;
    if (token.normalized && normalizer != nullptr) {
      AlignedText text(token.content, false);
      DS_RETURN_IF_ERROR(normalizer->Apply(&text));
      if (text.text() != token.content) added.normalized_[*id] = text.text();
    }
    added.ids_[token.content] = *id;
    if (token.special) added.special_.insert(token.content);
    added.tokens_[*id] = std::move(token);
  }
  std::vector<std::pair<std::string, std::uint32_t>> raw, normalized;
  for (const auto& [id, token] : added.tokens_) {
    (token.normalized ? normalized : raw).emplace_back(added.DecodedText(id), id);
  }
  added.raw_trie_ = ByteTrie(std::move(raw));
  added.normalized_trie_ = ByteTrie(std::move(normalized));
  return added;
}

std::optional<std::uint32_t> AddedTokens::Find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const AddedToken* AddedTokens::TokenOf(std::uint32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::string AddedTokens::DecodedText(std::uint32_t id) const {
  const auto changed = normalized_.find(id);
  return changed == normalized_.end() ? tokens_.at(id).content : changed->second;
}

bool AddedTokens::IsSingleWord(std::string_view text, const TokenMatch& found) const {
  const bool free_left =
      found.begin == 0 || !IsWordCharacter(LastCharacter(text.substr(0, found.begin)));
  const bool free_right = found.end == text.size() ||
                          !IsWordCharacter(FirstUtf8Character(text.substr(found.end)).code_point);
  return free_left && free_right;
}

// Finds the longest token at the leftmost position, then continues after it. A single_word token
// that is inside a word is dropped, but its bytes are skipped nevertheless.
std::vector<AddedTokens::TokenMatch> AddedTokens::FindIn(std::string_view text,
                                                         const ByteTrie& trie) const {
  std::vector<TokenMatch> all;
  const auto size = static_cast<std::uint32_t>(text.size());
  std::uint32_t covered = 0;
  std::uint32_t blanks_end = 0;  // of the white space scanned last
  for (std::uint32_t at = 0; at < size && !trie.empty();) {
    TokenMatch found{at, 0, kNoToken};
    trie.ForEachPrefix(text.substr(at), [&](std::size_t length, std::uint32_t id) {
      found.end = at + static_cast<std::uint32_t>(length);
      found.token = id;
    });
    if (found.token == kNoToken) {
      ++at;
      continue;
    }
    at = found.end;
    const AddedToken& token = tokens_.at(found.token);
    if (token.single_word && !IsSingleWord(text, found)) continue;
    if (token.lstrip) {
      found.begin = SkipBlanksBack(text, std::min(covered, found.begin), found.begin);
      found.begin = std::max(found.begin, covered);
    }
    if (token.rstrip) {
      // A run of white space where each character is a token is scanned once, not once per token.
      if (found.end > blanks_end) blanks_end = SkipBlanks(text, found.end);
      found.end = blanks_end;
    }
    if (covered < found.begin) all.push_back({covered, found.begin, kNoToken});
    all.push_back(found);
    covered = found.end;
  }
  if (covered != size) all.push_back({covered, size, kNoToken});
  return all;
}

Status AddedTokens::Extract(const AlignedText& text, const Normalizer* normalizer,
                            PreTokenizedText* words) const {
  for (const TokenMatch& found : FindIn(text.text(), raw_trie_)) {
    AlignedText part = text.Slice(found.begin, found.end);
    if (found.token != kNoToken) {
      words->Add(part, found.token);
      continue;
    }
    if (normalizer != nullptr) DS_RETURN_IF_ERROR(normalizer->Apply(&part));
    if (normalized_trie_.empty()) {
      words->Add(part);
      continue;
    }
    for (const TokenMatch& inner : FindIn(part.text(), normalized_trie_)) {
      words->Add(part.Slice(inner.begin, inner.end), inner.token);
    }
  }
  return OkStatus();
}

}  // namespace ds::tokenizer
