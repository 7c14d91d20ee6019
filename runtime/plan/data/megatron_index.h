#pragma once

// MegatronIndex: the .idx file beside a .bin file of tokens as Megatron-LM's preprocess_data.py
// writes them (megatron/core/datasets/indexed_dataset.py): which dtype the tokens have, and where
// sequences and documents end.
//
// The file is laid out as index_format.h says; its rows are sequences of tokens, and behind the
// documents stands how many sequences there are.
//
// Ends are read when they are needed. Threads: const functions may be called concurrently.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::data {

class MegatronIndex {
 public:
  // Says where the index of a .bin file would be.
  static std::filesystem::path PathFor(const std::filesystem::path& bin);

  // Reads all of it once. Refuses an index that is damaged, that is not of a file with `bin_bytes`
  // bytes, or of tokens that are no whole numbers, and one whose sequences do not lie one behind
  // the other; errors name the file and the sequence or document.
  static StatusOr<MegatronIndex> Open(const std::filesystem::path& path, std::int64_t bin_bytes);

  std::int64_t token_bytes() const { return token_bytes_; }
  std::int64_t documents() const { return documents_; }

  // The ends of documents [first, first + count), in tokens.
  StatusOr<std::vector<std::uint64_t>> ReadEnds(std::int64_t first, std::int64_t count) const;

 private:
  MegatronIndex() = default;
  Status ReadHeader();
  Status CheckSize() const;
  Status CheckSequences(std::int64_t bin_bytes) const;
  Status CheckDocuments() const;
  template <typename Number>
  StatusOr<std::vector<Number>> ReadNumbers(std::int64_t at, std::int64_t count) const;

  std::filesystem::path path_;
  UniqueFd fd_;
  std::int64_t token_bytes_ = 0, sequences_ = 0, documents_ = 0, tokens_ = 0;
  std::int64_t lengths_at_ = 0, pointers_at_ = 0, documents_at_ = 0;  // bytes of the file
};

}  // namespace ds::data
