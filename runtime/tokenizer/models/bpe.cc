#include "runtime/tokenizer/models/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>

#include "runtime/base/check.h"
#include "runtime/base/printable.h"
#include "runtime/tokenizer/text/byte_letters.h"
#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581
constexpr std::size_t kShortWord = 40;               // symbols

// Returns true if the token contains U+2581 after another character.
bool HasInnerBlank(std::string_view token) {
  for (std::size_t at = token.find(kBlank, 1); at != std::string_view::npos;
       at = token.find(kBlank, at + 1)) {
    if (!token.substr(0, at).ends_with(kBlank)) return true;
  }
  return false;
}

}  // namespace

PairTable::PairTable(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)) {
  mask_ = slots_.size() - 1;
}

void PairTable::Add(std::uint32_t left, std::uint32_t right, Merge merge) {
  DS_CHECK(merge.rank != kNone);
  const std::uint64_t key = KeyOf(left, right);
  std::size_t index = SlotOf(key);
  while (slots_[index].merge.rank != kNone && slots_[index].key != key) {
    index = (index + 1) & mask_;
  }
  slots_[index] = {key, merge};
}

Bpe::Bpe(Vocabulary vocabulary, BpeSettings settings)
    : Model(std::move(vocabulary)), settings_(std::move(settings)) {
  for (unsigned c = 0; c < 128; ++c) {
    ascii_ids_[c] = this->vocabulary().Find(std::string(1, static_cast<char>(c)));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = this->vocabulary().Find(ByteToken(static_cast<unsigned char>(byte)));
  }
}

StatusOr<std::unique_ptr<Bpe>> Bpe::Create(Vocabulary vocabulary, const Merges& merges,
                                           BpeSettings settings,
                                           const std::vector<std::uint32_t>& ranks) {
  std::unique_ptr<Bpe> bpe(new Bpe(std::move(vocabulary), std::move(settings)));
  DS_RETURN_IF_ERROR(bpe->AddMerges(merges, ranks));
  return bpe;
}

Status Bpe::AddMerges(const Merges& merges, const std::vector<std::uint32_t>& ranks) {
  pairs_ = PairTable(merges.size());
  const std::string& prefix = settings_.continuing_subword_prefix;
  splits_at_blanks_ = vocabulary().Find(kBlank).has_value() && prefix.empty() &&
                      settings_.end_of_word_suffix.empty();
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto refuse = [&](const std::string& token) {
      return InvalidArgumentError("merge " + std::to_string(rank + 1) + " needs the token '" +
                                  Printable(token) + "', which is not in the vocabulary");
    };
    const auto left_id = vocabulary().Find(left);
    const auto right_id = vocabulary().Find(right);
    if (!left_id) return refuse(left);
    if (!right_id || right.size() < prefix.size()) return refuse(right);
    const std::string merged = left + right.substr(prefix.size());
    const auto id = vocabulary().Find(merged);
    if (!id) return refuse(merged);
    const auto early = ranks.empty() ? static_cast<std::uint32_t>(rank) : ranks[rank];
    pairs_.Add(*left_id, *right_id, {early, *id});
    if (splits_at_blanks_ && HasInnerBlank(merged)) splits_at_blanks_ = false;
  }
  return OkStatus();
}

bool Bpe::ReadBytes() {
  if (!settings_.continuing_subword_prefix.empty() || !settings_.end_of_word_suffix.empty()) {
    return false;
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary().Find(ByteLetters()[byte]);
    if (!id) return false;
    byte_ids_[byte] = *id;
  }
  if (settings_.ignore_merges) {
    vocabulary().ForEach([&](std::string_view token, std::uint32_t id) {
      if (const auto bytes = LettersToBytes(token)) vocabulary_words_.emplace(*bytes, id);
    });
  }
  reads_bytes_ = true;
  return true;
}

std::optional<std::uint32_t> Bpe::FindVocabularyWord(std::string_view word) const {
  if (!reads_bytes_) return vocabulary().Find(word);
  const auto found = vocabulary_words_.find(std::string(word));
  if (found == vocabulary_words_.end()) return std::nullopt;
  return found->second;
}

Status Bpe::Tokenize(std::string_view word, WordCache* cache, std::vector<Token>* tokens) const {
  if (cache->Find(word, 0, tokens)) return OkStatus();
  const std::size_t first = tokens->size();
  if (settings_.ignore_merges) {
    if (const auto id = FindVocabularyWord(word)) {
      tokens->push_back({*id, 0, static_cast<std::uint32_t>(word.size())});
      cache->Keep(word, 0, std::span(*tokens).subspan(first));
      return OkStatus();
    }
  }
  const bool as_one_word = reads_bytes_ || !splits_at_blanks_ || settings_.ignore_merges;
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t end = as_one_word ? word.size() : EndOfPart(word, begin);
    const std::string_view part = word.substr(begin, end - begin);
    const auto offset = static_cast<std::uint32_t>(begin);
    begin = end;
    if (!as_one_word && cache->Find(part, offset, tokens)) continue;
    const std::size_t part_first = tokens->size();
    DS_RETURN_IF_ERROR(TokenizePart(part, offset, tokens));
    cache->Keep(part, offset, std::span(*tokens).subspan(part_first));
  }
  return OkStatus();
}

// Returns the end of the part that begins here: the next blank after another character.
std::size_t Bpe::EndOfPart(std::string_view word, std::size_t begin) const {
  std::size_t at = begin;
  while (word.substr(at).starts_with(kBlank)) at += kBlank.size();
  return std::min(word.find(kBlank, at), word.size());
}

Status Bpe::TokenizePart(std::string_view part, std::uint32_t offset,
                         std::vector<Token>* tokens) const {
  std::vector<Symbol> symbols;
  symbols.reserve(part.size());
  if (reads_bytes_) {
    for (const char c : part) symbols.push_back({byte_ids_[static_cast<unsigned char>(c)], 1});
  } else {
    DS_RETURN_IF_ERROR(Spell(part, &symbols));
  }
  if (symbols.size() <= kShortWord) {
    MergeShort(&symbols);
  } else {
    MergeLong(&symbols);
  }
  for (const Symbol& symbol : symbols) {
    tokens->push_back({symbol.id, offset, offset + symbol.length});
    offset += symbol.length;
  }
  return OkStatus();
}

// Makes the first symbols: characters, bytes of unknown characters, or the unknown token.
Status Bpe::Spell(std::string_view part, std::vector<Symbol>* symbols) const {
  std::optional<Symbol> unknown;  // not yet added
  std::string text;
  for (std::size_t at = 0; at < part.size();) {
    const std::size_t length = Utf8Length(part[at]);
    text = part.substr(at, length);
    if (at > 0) text.insert(0, settings_.continuing_subword_prefix);
    at += length;
    if (at == part.size()) text += settings_.end_of_word_suffix;
    const auto id = text.size() == 1 ? ascii_ids_[static_cast<unsigned char>(text[0]) & 127]
                                     : vocabulary().Find(text);
    if (id) {
      if (unknown) symbols->push_back(*unknown);
      unknown.reset();
      symbols->push_back({*id, static_cast<std::uint32_t>(length)});
      continue;
    }
    const bool has_bytes =
        settings_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
          return byte_tokens_[static_cast<unsigned char>(c)].has_value();
        });
    if (has_bytes) {
      for (const char c : text) {
        symbols->push_back({*byte_tokens_[static_cast<unsigned char>(c)], 1});
      }
      continue;
    }
    if (settings_.unk_token.empty()) continue;
    if (unknown && settings_.fuse_unk) {
      unknown->length += static_cast<std::uint32_t>(length);
      continue;
    }
    if (unknown) symbols->push_back(*unknown);
    const auto unknown_id = vocabulary().Find(settings_.unk_token);
    if (!unknown_id) {
      return FailedPreconditionError("the unknown token '" + Printable(settings_.unk_token) +
                                     "' is not in the vocabulary");
    }
    unknown = Symbol{*unknown_id, static_cast<std::uint32_t>(length)};
  }
  if (unknown) symbols->push_back(*unknown);
  return OkStatus();
}

void Bpe::MergeShort(std::vector<Symbol>* symbols) const {
  std::array<PairTable::Merge, kShortWord> merges;  // of each symbol with the next one
  std::size_t count = symbols->size();
  if (count < 2) return;
  Symbol* const list = symbols->data();
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = pairs_.Find(list[i].id, list[i + 1].id);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == PairTable::kNone) break;
    list[best].id = merges[best].id;
    list[best].length += list[best + 1].length;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      list[i] = list[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best > 0) merges[best - 1] = pairs_.Find(list[best - 1].id, list[best].id);
    if (best + 1 < count) merges[best] = pairs_.Find(list[best].id, list[best + 1].id);
  }
  symbols->resize(count);
}

// Keeps symbols in a linked list, and their merges in a heap by rank and position. Merges that
// became outdated stay in the heap and are recognized by their rank.
void Bpe::MergeLong(std::vector<Symbol>* symbols) const {
  constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  const auto count = static_cast<std::uint32_t>(symbols->size());
  std::vector<std::uint32_t> next(count), previous(count);
  std::vector<bool> gone(count, false);
  Symbol* const list = symbols->data();
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
  }
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> heap;
  const auto offer = [&](std::uint32_t index) {
    if (index == kEnd || next[index] == kEnd) return;
    const PairTable::Merge merge = pairs_.Find(list[index].id, list[next[index]].id);
    if (merge.rank != PairTable::kNone) heap.push((std::uint64_t{merge.rank} << 32) | index);
  };
  for (std::uint32_t i = 0; i < count; ++i) offer(i);
  while (!heap.empty()) {
    const auto rank = static_cast<std::uint32_t>(heap.top() >> 32);
    const auto index = static_cast<std::uint32_t>(heap.top());
    heap.pop();
    if (gone[index] || next[index] == kEnd) continue;
    const std::uint32_t right = next[index];
    const PairTable::Merge merge = pairs_.Find(list[index].id, list[right].id);
    if (merge.rank != rank) continue;
    list[index].id = merge.id;
    list[index].length += list[right].length;
    gone[right] = true;
    next[index] = next[right];
    if (next[right] != kEnd) previous[next[right]] = index;
    offer(previous[index]);
    offer(index);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != kEnd; i = next[i]) list[kept++] = list[i];
  symbols->resize(kept);
}

}  // namespace ds::tokenizer
