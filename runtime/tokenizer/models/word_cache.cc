#include "runtime/tokenizer/models/word_cache.h"

#include <cstring>

namespace ds::tokenizer {
namespace {

constexpr std::size_t kSlots = std::size_t{1} << 17;  // a power of two
constexpr std::size_t kMostWords = kSlots / 2;
constexpr std::size_t kMostTokens = std::size_t{1} << 21;

std::uint64_t Mix(std::uint64_t a) {
  const auto product = static_cast<unsigned __int128>(a) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t HashOf(std::string_view word) {
  std::uint64_t hash = 0x2545F4914F6CDD1DULL + word.size();
  while (word.size() >= 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, word.data(), 8);
    hash = Mix(hash ^ bytes);
    word.remove_prefix(8);
  }
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, word.data(), word.size());
  return Mix(hash ^ bytes) | 1;
}

}  // namespace

WordCache::WordCache() : entries_(kSlots) {}

// Returns the slot of the word, or the free slot where it belongs.
std::size_t WordCache::SlotOf(std::uint64_t hash, std::string_view word) const {
  std::size_t slot_index = hash >> 20 & (kSlots - 1);
  while (entries_[slot_index].hash != 0) {
    const Entry& entry = entries_[slot_index];
    if (entry.hash == hash && entry.word_size == word.size() &&
        std::memcmp(words_.data() + entry.word, word.data(), word.size()) == 0) {
      break;
    }
    slot_index = (slot_index + 1) & (kSlots - 1);
  }
  return slot_index;
}

bool WordCache::Find(std::string_view word, std::uint32_t offset, std::vector<Token>* tokens) {
  if (word.size() > kLongestWord) return false;
  const Entry& entry = entries_[SlotOf(HashOf(word), word)];
  if (entry.hash == 0) return false;
  for (std::uint32_t i = 0; i < entry.token_count; ++i) {
    const Token& token = tokens_[entry.tokens + i];
    tokens->push_back({token.id, token.begin + offset, token.end + offset});
  }
  return true;
}

void WordCache::Keep(std::string_view word, std::uint32_t offset, std::span<const Token> tokens) {
  if (word.size() > kLongestWord || tokens.size() > 4 * kLongestWord) return;
  if (count_ >= kMostWords || tokens_.size() >= kMostTokens) Clear();
  const std::uint64_t hash = HashOf(word);
  Entry& entry = entries_[SlotOf(hash, word)];
  entry = {hash, static_cast<std::uint32_t>(words_.size()),
           static_cast<std::uint32_t>(tokens_.size()), static_cast<std::uint16_t>(word.size()),
           static_cast<std::uint16_t>(tokens.size())};
  words_ += word;
  for (const Token& token : tokens) {
    tokens_.push_back({token.id, token.begin - offset, token.end - offset});
  }
  ++count_;
}

void WordCache::Clear() {
  entries_.assign(kSlots, {});
  words_.clear();
  tokens_.clear();
  count_ = 0;
}

}  // namespace ds::tokenizer
