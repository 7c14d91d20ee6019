#pragma once

// Charsmap is SentencePiece's compiled table of replacements ("precompiled_charsmap"). Its layout:
// the size of a double array in bytes, the array (darts-clone), and the replacements, each
// terminated by a zero byte.
//
// Every offset of the table is checked against its bounds when it is followed. Thread-safe: const
// functions may be called concurrently.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/normalizers/normalizer.h"

namespace ds::tokenizer {

class Charsmap {
 public:
  // Creates an empty table, which replaces nothing.
  Charsmap() = default;
  static StatusOr<Charsmap> Parse(std::string_view bytes);

  bool empty() const { return units_.empty(); }

  struct Replacement {
    std::size_t length = 0;  // of the replaced text
    std::string_view text;
  };
  // Returns the replacement of the beginning of `text`, by the shortest entry that matches there.
  std::optional<Replacement> FindShortest(std::string_view text) const;
  // Returns the same by the longest entry, as SentencePiece itself does.
  std::optional<Replacement> FindLongest(std::string_view text) const;

 private:
  template <typename Use>
  void ForEachPrefix(std::string_view text, Use use) const;
  std::string_view ReplacementAt(std::uint32_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

// Reads "Precompiled" of a tokenizer.json, which has the table in base64. It is applied as in
// Hugging Face's library: to clusters of less than six bytes, else to characters.
StatusOr<std::unique_ptr<Normalizer>> ReadPrecompiled(const JsonObject& component);

}  // namespace ds::tokenizer
