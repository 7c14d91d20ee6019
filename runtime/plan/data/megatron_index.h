#pragma once

// MegatronIndex: the .idx file that Megatron-LM's preprocess_data.py writes next to a .bin file of
// tokens (megatron/core/datasets/indexed_dataset.py). It has the dtype of the tokens and the ends
// of sequences and documents.
//
// The layout follows index_format.h: rows are sequences of tokens, and the number of sequences
// follows the documents.
//
// Ends are read on demand. Threads: const functions may be called concurrently.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::data {

class MegatronIndex {
 public:
  // Returns the path of the index of a .bin file. The index need not exist.
  static std::filesystem::path PathFor(const std::filesystem::path& bin);

  // Reads the full index once. Refuses an index that is damaged, does not match a file of
  // `bin_bytes` bytes, has non-integer tokens, or has sequences that are not contiguous. Errors
  // name the file and the sequence or document.
  static StatusOr<MegatronIndex> Open(const std::filesystem::path& path, std::int64_t bin_bytes);

  std::int64_t token_bytes() const { return token_bytes_; }
  std::int64_t documents() const { return documents_; }

  // Returns the ends of documents [first, first + count), in tokens.
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
  std::int64_t lengths_at_ = 0, pointers_at_ = 0, documents_at_ = 0;  // byte offsets
};

}  // namespace ds::data
