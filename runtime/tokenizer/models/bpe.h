#pragma once

// Bpe implements byte-pair encoding (Sennrich et al. 2016). It starts from the characters of a word
// and applies the earliest-ranked merge of two neighbours, from the left, until none applies.
//
// Short words are merged by scanning all neighbours each time, long ones with a heap in n log n;
// both give the same tokens.

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/tokenizer/models/model.h"

namespace ds::tokenizer {

// PairTable maps a pair of tokens to its merge: the rank and the resulting token. It is a flat hash
// table, as merging looks up every pair of neighbours.
//
// Thread-safe: const functions may be called concurrently.
class PairTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Merge {
    std::uint32_t rank = kNone;  // kNone: the two do not merge
    std::uint32_t id = 0;        // the resulting token
  };

  // Allocates space for `count` pairs.
  explicit PairTable(std::size_t count = 0);

  // Adds a merge; a later merge of the same pair replaces the earlier one. Requires free space.
  void Add(std::uint32_t left, std::uint32_t right, Merge merge);

  Merge Find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = KeyOf(left, right);
    for (std::size_t index = SlotOf(key);; index = (index + 1) & mask_) {
      const Slot& slot = slots_[index];
      if (slot.key == key) return slot.merge;
      if (slot.merge.rank == kNone) return {};
    }
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Merge merge;
  };
  static std::uint64_t KeyOf(std::uint32_t left, std::uint32_t right) {
    return (std::uint64_t{left} << 32) | right;
  }
  std::size_t SlotOf(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> 32) & mask_;
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

struct BpeSettings {
  std::string unk_token;                  // "": none, unknown characters are left out
  std::string continuing_subword_prefix;  // before all characters of a word except the first
  std::string end_of_word_suffix;         // after the last one
  bool fuse_unk = false;                  // one unknown token for unknown characters in a row
  bool byte_fallback = false;             // tokens <0x00> to <0xFF> for unknown characters
  bool ignore_merges = false;             // a word that is a token is not split
};

class Bpe final : public Model {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;
  // Rejects merges of tokens that are not in the vocabulary. `ranks` gives the rank of each merge
  // if it is not its index. Of merges with equal rank the leftmost is applied first.
  static StatusOr<std::unique_ptr<Bpe>> Create(Vocabulary vocabulary, const Merges& merges,
                                               BpeSettings settings,
                                               const std::vector<std::uint32_t>& ranks = {});

  Status Tokenize(std::string_view word, WordCache* cache,
                  std::vector<Token>* tokens) const override;
  bool ReadBytes() override;

 private:
  // A part of a word during merging; its position is the sum of the lengths before it.
  struct Symbol {
    std::uint32_t id = 0;
    std::uint32_t length = 0;
  };

  Bpe(Vocabulary vocabulary, BpeSettings settings);
  Status AddMerges(const Merges& merges, const std::vector<std::uint32_t>& ranks);
  std::optional<std::uint32_t> FindVocabularyWord(std::string_view word) const;
  std::size_t EndOfPart(std::string_view word, std::size_t begin) const;
  Status TokenizePart(std::string_view part, std::uint32_t offset,
                      std::vector<Token>* tokens) const;
  Status Spell(std::string_view part, std::vector<Symbol>* symbols) const;
  void MergeShort(std::vector<Symbol>* symbols) const;
  void MergeLong(std::vector<Symbol>* symbols) const;

  BpeSettings settings_;
  PairTable pairs_;
  std::array<std::optional<std::uint32_t>, 128> ascii_ids_;
  std::array<std::optional<std::uint32_t>, 256> byte_tokens_;  // <0x00> ...
  // The letters of the vocabulary stand for bytes.
  bool reads_bytes_ = false;
  std::array<std::uint32_t, 256> byte_ids_ = {};
  std::unordered_map<std::string, std::uint32_t> vocabulary_words_;  // by their bytes
  // True when no token has U+2581 after another character. Words are then split before U+2581, so
  // that the cache is effective even where a text is one word.
  bool splits_at_blanks_ = false;
};

}  // namespace ds::tokenizer
