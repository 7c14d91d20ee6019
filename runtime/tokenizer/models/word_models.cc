#include "runtime/tokenizer/models/word_models.h"

#include "runtime/base/printable.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

// Returns a trie of the tokens that begin with `prefix`, without the prefix.
ByteTrie TrieAfter(const Vocabulary& vocabulary, std::string_view prefix) {
  std::vector<std::pair<std::string, std::uint32_t>> keys;
  vocabulary.ForEach([&](std::string_view token, std::uint32_t id) {
    if (token.starts_with(prefix)) keys.emplace_back(token.substr(prefix.size()), id);
  });
  return ByteTrie(std::move(keys));
}

Status AppendUnknownWord(const Vocabulary& vocabulary, const std::string& token,
                         std::string_view word, std::vector<Token>* tokens) {
  const auto id = vocabulary.Find(token);
  if (!id) {
    return FailedPreconditionError("the unknown token '" + Printable(token) +
                                   "' is not in the vocabulary");
  }
  tokens->push_back({*id, 0, static_cast<std::uint32_t>(word.size())});
  return OkStatus();
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, Settings settings)
    : Model(std::move(vocabulary)),
      settings_(std::move(settings)),
      first_(TrieAfter(this->vocabulary(), "")),
      others_(TrieAfter(this->vocabulary(), settings_.continuing_subword_prefix)) {}

bool WordPiece::Cut(std::string_view word, std::vector<Token>* tokens) const {
  for (std::size_t at = 0; at < word.size();) {
    std::size_t longest = 0;
    std::uint32_t token = 0;
    const ByteTrie& trie = at == 0 ? first_ : others_;
    trie.ForEachPrefix(word.substr(at), [&](std::size_t length, std::uint32_t id) {
      longest = length;
      token = id;
    });
    if (longest == 0) return false;
    tokens->push_back(
        {token, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + longest)});
    at += longest;
  }
  return true;
}

Status WordPiece::Tokenize(std::string_view word, WordCache* cache,
                           std::vector<Token>* tokens) const {
  if (cache->Find(word, 0, tokens)) return OkStatus();
  const std::size_t first = tokens->size();
  const bool too_long = CountCharacters(word) > settings_.max_input_chars_per_word;
  if (too_long || !Cut(word, tokens)) {
    tokens->resize(first);
    DS_RETURN_IF_ERROR(AppendUnknownWord(vocabulary(), settings_.unk_token, word, tokens));
  }
  cache->Keep(word, 0, std::span(*tokens).subspan(first));
  return OkStatus();
}

WordLevel::WordLevel(Vocabulary vocabulary, std::string unk_token)
    : Model(std::move(vocabulary)), unk_token_(std::move(unk_token)) {}

Status WordLevel::Tokenize(std::string_view word, WordCache*, std::vector<Token>* tokens) const {
  if (const auto id = vocabulary().Find(word)) {
    tokens->push_back({*id, 0, static_cast<std::uint32_t>(word.size())});
    return OkStatus();
  }
  return AppendUnknownWord(vocabulary(), unk_token_, word, tokens);
}

}  // namespace ds::tokenizer
