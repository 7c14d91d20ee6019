#pragma once

// DocumentReader: the texts of files one after the other, in batches that fit the memory. A text
// file is one text; each line of a .jsonl file is an object with a text, and so is each row of a
// Parquet or Arrow file (row_file.h).
//
// Reads; parses nothing. Threads: one.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/tokenizer/corpus/row_file.h"

namespace ds::tokenizer {

// Whole lines of a .jsonl file, rows as such lines, or a whole text file.
struct DocumentBatch {
  std::filesystem::path path;
  std::string bytes;
  bool lines = false;
  std::uint64_t first_line = 1;
};

class DocumentReader {
 public:
  // Refuses paths that are no readable files.
  static StatusOr<DocumentReader> Open(const std::vector<std::string>& paths);

  std::uint64_t total_bytes() const { return total_bytes_; }

  // The next batch; nothing when there is no more.
  StatusOr<std::optional<DocumentBatch>> Next();

 private:
  DocumentReader() = default;
  StatusOr<DocumentBatch> ReadLines();
  // Nothing behind the file's last row.
  StatusOr<std::optional<DocumentBatch>> ReadRows();

  std::vector<std::filesystem::path> paths_;
  std::uint64_t total_bytes_ = 0;
  std::size_t next_path_ = 0;
  std::optional<RowFile> rows_;  // the Parquet or Arrow file that is being read
  // These belong to the .jsonl file that is being read.
  UniqueFd file_;
  std::string rest_;  // read, but behind the last whole line
  std::uint64_t line_ = 1;
};

// Uses a text; `place` is how errors call it: FILE, or FILE:LINE.
using UseOfText = std::function<Status(std::string_view text, const std::string& place)>;

// Calls use with a whole text file, or with every line that is not empty.
Status ForEachDocument(const DocumentBatch& batch, const UseOfText& use);

// The same with the text that a line has under `field`.
Status ForEachText(const DocumentBatch& batch, const std::string& field, const UseOfText& use);

}  // namespace ds::tokenizer
