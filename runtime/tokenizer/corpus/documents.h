#pragma once

// DocumentReader: the texts of files one after the other, in batches that fit the memory. A text
// file is one text; every other file is read as rows, a JSON object each: the lines of .jsonl, the
// elements of a .json array, the rows of .csv, Parquet and Arrow files (data_kind.h).
//
// Reads; understands nothing of a row's fields. Threads: one.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/data_files.h"
#include "runtime/tokenizer/corpus/row_source.h"

namespace ds::tokenizer {

// Rows, a line each, or a whole text file.
struct DocumentBatch {
  std::filesystem::path path;
  std::string bytes;
  bool lines = false;
  std::uint64_t first_line = 1;
  std::vector<std::uint64_t> places = {};  // of every line in its file; empty: consecutive
  std::uint64_t done_bytes = 0;            // of all files, up to the end of this batch
};

class DocumentReader {
 public:
  // Refuses paths that ListDataFiles refuses, and files of tokens. `field`: of .json files, the
  // field with the rows; empty: the file is the rows.
  static StatusOr<DocumentReader> Open(const std::vector<std::string>& paths,
                                       std::string field = "");

  std::uint64_t total_bytes() const { return total_bytes_; }
  // Returns a notice for each folder with files that are not read.
  const std::vector<std::string>& notices() const { return data_.notices; }

  // The next batch; nothing when there is no more.
  StatusOr<std::optional<DocumentBatch>> Next();

 private:
  DocumentReader() = default;
  StatusOr<DocumentBatch> ReadText(const DataFile& file);
  StatusOr<std::unique_ptr<RowSource>> OpenRows(const DataFile& file) const;

  DataFiles data_;
  std::string field_;
  std::uint64_t total_bytes_ = 0;
  std::size_t next_file_ = 0;
  std::unique_ptr<RowSource> rows_;   // of the file that is being read
  std::uint64_t finished_bytes_ = 0;  // of the files before it
};

// Uses a text; `place` is how errors call it: FILE, or FILE:LINE.
using UseOfText = std::function<Status(std::string_view text, const std::string& place)>;

// Calls use with a whole text file, or with every row that is not empty. NaN in a row is null.
Status ForEachDocument(const DocumentBatch& batch, const UseOfText& use);

}  // namespace ds::tokenizer
