#include "runtime/tokenizer/models/unigram.h"

#include <algorithm>
#include <limits>

#include "runtime/tokenizer/text/byte_letters.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

// An unknown character scores this much below the worst token.
constexpr double kUnknownPenalty = 10;

ByteTrie TrieOf(const Vocabulary& vocabulary, const std::vector<bool>& hidden) {
  std::vector<std::pair<std::string, std::uint32_t>> keys;
  vocabulary.ForEach([&](std::string_view token, std::uint32_t id) {
    if (id >= hidden.size() || !hidden[id]) keys.emplace_back(token, id);
  });
  return ByteTrie(std::move(keys));
}

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, Settings settings)
    : Model(std::move(vocabulary)),
      scores_(std::move(scores)),
      settings_(std::move(settings)),
      trie_(TrieOf(this->vocabulary(), settings_.hidden)) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t id = 0; id < scores_.size(); ++id) {
    const bool is_hidden = id < settings_.hidden.size() && settings_.hidden[id];
    if (!is_hidden) least = std::min(least, scores_[id]);
  }
  unknown_score_ = least - kUnknownPenalty;
}

StatusOr<std::vector<Token>> Unigram::FindBestPath(std::string_view word) const {
  struct Best {
    double score = 0;
    std::uint32_t begin = 0xFFFFFFFF;  // of the last token of the best path that ends here
    std::uint32_t id = 0;
  };
  std::vector<Best> best(word.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::uint32_t id) {
    if (settings_.single_precision) score = static_cast<double>(static_cast<float>(score));
    Best& there = best[end];
    if (there.begin == 0xFFFFFFFF || score > there.score) {
      there = {score, static_cast<std::uint32_t>(begin), id};
    }
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = Utf8Length(word[at]);
    const double score = best[at].score;
    bool has_character = false;
    trie_.ForEachPrefix(word.substr(at), [&](std::size_t size, std::uint32_t id) {
      has_character = has_character || size == length;
      offer(at, at + size, score + scores_[id], id);
    });
    if (!has_character) {
      if (!settings_.unk_id) {
        return FailedPreconditionError("the model has no token for '" +
                                       std::string(word.substr(at, length)) +
                                       "', and none for unknown text (unk_id)");
      }
      offer(at, at + length, score + unknown_score_, *settings_.unk_id);
    }
    at += length;
  }
  std::vector<Token> path;
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    path.push_back({best[end].id, best[end].begin, static_cast<std::uint32_t>(end)});
  }
  std::reverse(path.begin(), path.end());
  return path;
}

Status Unigram::Tokenize(std::string_view word, WordCache* cache,
                         std::vector<Token>* tokens) const {
  if (cache->Find(word, 0, tokens)) return OkStatus();
  const std::size_t first = tokens->size();
  DS_ASSIGN_OR_RETURN(const std::vector<Token> path, FindBestPath(word));
  for (std::size_t i = 0; i < path.size(); ++i) {
    Token token = path[i];
    if (!settings_.unk_id || token.id != *settings_.unk_id) {
      tokens->push_back(token);
      continue;
    }
    // Consecutive unknown characters become one token.
    for (; i + 1 < path.size() && path[i + 1].id == *settings_.unk_id; ++i) {
      token.end = path[i + 1].end;
    }
    DS_RETURN_IF_ERROR(AppendUnknown(word, token, tokens));
  }
  cache->Keep(word, 0, std::span(*tokens).subspan(first));
  return OkStatus();
}

Status Unigram::AppendUnknown(std::string_view word, Token token,
                              std::vector<Token>* tokens) const {
  const std::string_view text = word.substr(token.begin, token.end - token.begin);
  if (const auto id = vocabulary().Find(text)) {
    tokens->push_back({*id, token.begin, token.end});
    return OkStatus();
  }
  if (settings_.byte_fallback) {
    const std::size_t first = tokens->size();
    for (const char c : text) {
      const auto id = vocabulary().Find(ByteToken(static_cast<unsigned char>(c)));
      if (!id) break;
      tokens->push_back({*id, token.begin, token.end});
    }
    if (tokens->size() == first + text.size()) return OkStatus();
    tokens->resize(first);
  }
  tokens->push_back(token);
  return OkStatus();
}

std::string Unigram::TextOf(const Token& token, std::string_view word) const {
  if (settings_.unk_id && token.id == *settings_.unk_id) {
    return std::string(word.substr(token.begin, token.end - token.begin));
  }
  return Model::TextOf(token, word);
}

}  // namespace ds::tokenizer
