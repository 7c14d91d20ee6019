#pragma once

// RowFile: the rows of a Parquet or Arrow file as lines of JSON, one object a row, in batches.
// Arrow's libraries are behind a plugin (arrow_plugin.h), which is loaded with the first file.
//
// Threads: one.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/arrow_plugin.h"

namespace ds::tokenizer {

class RowFile {
 public:
  // Tells such a file by its name: .parquet, .arrow or .feather.
  static bool IsOne(const std::filesystem::path& path);

  // Fails where the file is damaged, and, saying how to get them, where there are no libraries.
  static StatusOr<RowFile> Open(const std::filesystem::path& path);

  struct Rows {
    std::string lines;
    std::uint64_t first = 1;  // counted from 1
  };
  // The next rows; nothing behind the last. Errors name the row behind which nothing can be read.
  StatusOr<std::optional<Rows>> Next();

 private:
  struct Close {
    const DsArrowPlugin* plugin = nullptr;
    void operator()(DsRowFile* file) const { plugin->close(file); }
  };
  RowFile(std::filesystem::path path, const DsArrowPlugin* plugin, DsRowFile* file)
      : path_(std::move(path)), plugin_(plugin), file_(file, Close{plugin}) {}

  std::filesystem::path path_;
  const DsArrowPlugin* plugin_;
  std::unique_ptr<DsRowFile, Close> file_;
  std::uint64_t next_row_ = 1;
};

}  // namespace ds::tokenizer
