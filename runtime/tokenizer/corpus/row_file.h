#pragma once

// RowFile reads the rows of a Parquet or Arrow file as lines of JSON, one object per row, in
// batches. Arrow's libraries come with a plugin (arrow_plugin.h), which is loaded for the first
// file.
//
// Not thread-safe.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tokenizer/corpus/arrow_plugin.h"
#include "runtime/tokenizer/corpus/row_source.h"

namespace ds::tokenizer {

class RowFile : public RowSource {
 public:
  // Fails if the file is damaged, or if Arrow's libraries are missing; that error explains how to
  // get them.
  static StatusOr<RowFile> Open(const std::filesystem::path& path);

  // Errors name the last row that was read.
  StatusOr<std::optional<RowBatch>> Next() override;
  std::uint64_t position() const override { return 0; }  // Arrow does not report it

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
