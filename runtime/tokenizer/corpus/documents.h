#pragma once

// DocumentReader reads the texts of files one after the other, in batches that fit into memory. A
// text file is one text. Every other file is read as rows, one JSON object each: the lines of
// .jsonl, the elements of a .json array, the rows of .csv, Parquet and Arrow files (data_kind.h).
//
// It does not interpret the fields of a row. Not thread-safe.

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

// Rows, one per line, or a full text file.
struct DocumentBatch {
  std::filesystem::path path;
  std::string bytes;
  bool lines = false;
  std::uint64_t first_line = 1;
  std::vector<std::uint64_t> line_numbers =
      {};                        // line number in the file, per line; empty: consecutive
  std::uint64_t done_bytes = 0;  // total over all files, up to the end of this batch
};

class DocumentReader {
 public:
  // Rejects paths that ListDataFiles rejects, and token files. `field` is the field of .json files
  // that holds the rows; empty: the top level.
  static StatusOr<DocumentReader> Open(const std::vector<std::string>& paths,
                                       std::string field = "");

  std::uint64_t total_bytes() const { return total_bytes_; }
  // Returns a notice for each folder with files that are skipped.
  const std::vector<std::string>& notices() const { return data_.notices; }

  // Returns the next batch; nothing at the end.
  StatusOr<std::optional<DocumentBatch>> Next();

 private:
  DocumentReader() = default;
  StatusOr<DocumentBatch> ReadText(const DataFile& file);
  StatusOr<std::unique_ptr<RowSource>> OpenRows(const DataFile& file) const;

  DataFiles data_;
  std::string field_;
  std::uint64_t total_bytes_ = 0;
  std::size_t next_file_ = 0;
  std::unique_ptr<RowSource> rows_;   // of the current file
  std::uint64_t finished_bytes_ = 0;  // of the files before the current one
};

// Processes a text. `location` is its name in errors: FILE, or FILE:LINE.
using UseOfText = std::function<Status(std::string_view text, const std::string& location)>;

// Calls `use` with a full text file, or with every row that is not empty. NaN in a row is replaced
// by null.
Status ForEachDocument(const DocumentBatch& batch, const UseOfText& use);

}  // namespace ds::tokenizer
