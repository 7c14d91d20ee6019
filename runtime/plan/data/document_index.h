#pragma once

// DocumentIndex: where the documents of a row of tokens end, in their order: in a file of
// little-endian uint64, one for each document, or wherever else somebody knows it.
//
// One end in a thousand is held in memory, the others are read when they are needed. Threads: const
// functions may be called concurrently.

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
  // `count` documents are in the file.
  static StatusOr<DocumentIndex> Open(const std::filesystem::path& path, std::int64_t count);

  // Reads the ends of documents [first, first + count).
  using ReadEnds =
      std::function<StatusOr<std::vector<std::uint64_t>>(std::int64_t first, std::int64_t count)>;
  // `name` is what errors call it.
  static StatusOr<DocumentIndex> Create(std::string name, std::int64_t count, ReadEnds read);

  // Calls visit(end) for every document in order; ends are tokens of the row, the first not theirs.
  Status ForEachEnd(const std::function<void(std::int64_t end)>& visit) const;

  // Numbers the documents of the tokens from `first` on: 0 for the first token's, 1 for the next.
  // Requires that all tokens are of some document.
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
