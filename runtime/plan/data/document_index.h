#pragma once

// DocumentIndex: the ends of the documents in a row of tokens, in order. The ends are in a file of
// little-endian uint64, one per document, or come from a function.
//
// One end in a thousand is kept in memory; the others are read on demand. Threads: const functions
// may be called concurrently.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::data {

class DocumentIndex {
 public:
  // Opens a file with the ends of `count` documents.
  static StatusOr<DocumentIndex> Open(const std::filesystem::path& path, std::int64_t count);

  // Reads the ends of documents [first, first + count).
  using ReadEnds =
      std::function<StatusOr<std::vector<std::uint64_t>>(std::int64_t first, std::int64_t count)>;
  // Errors refer to the index as `name`.
  static StatusOr<DocumentIndex> Create(std::string name, std::int64_t count, ReadEnds read);

  // Calls visit(end) for every document in order; `end` is the index of the first token after it.
  Status ForEachEnd(const std::function<void(std::int64_t end)>& visit) const;

  // Sets the document numbers of the tokens from `first` on: 0 for the first token's document, 1
  // for the next. Fails if a token is in no document.
  Status Number(std::int64_t first, std::span<std::int64_t> numbers) const;

 private:
  DocumentIndex() = default;
  StatusOr<std::vector<std::uint64_t>> ReadBlock(std::int64_t block) const;

  std::string name_;
  ReadEnds read_;
  std::int64_t count_ = 0;
  std::vector<std::uint64_t> last_ends_;  // of each block
};

}  // namespace ds::data
