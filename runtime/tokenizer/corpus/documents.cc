#include "runtime/tokenizer/corpus/documents.h"

#include <algorithm>

#include "runtime/base/byte_size.h"
#include "runtime/base/files.h"
#include "runtime/tokenizer/corpus/byte_stream.h"
#include "runtime/tokenizer/corpus/json_rows.h"
#include "runtime/tokenizer/corpus/row_file.h"
#include "runtime/tokenizer/corpus/row_json.h"
#include "runtime/tokenizer/corpus/table_rows.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

// LineRows reads the lines of a .jsonl file unchanged. Not thread-safe.
class LineRows : public RowSource {
 public:
  explicit LineRows(ByteStream stream) : stream_(std::move(stream)) {}

  StatusOr<std::optional<RowBatch>> Next() override;
  std::uint64_t position() const override { return stream_.position(); }

 private:
  ByteStream stream_;
  std::string rest_;  // bytes read after the last complete line
  std::uint64_t line_ = 1;
  bool at_end_ = false;
};

StatusOr<std::optional<RowBatch>> LineRows::Next() {
  if (at_end_) return std::optional<RowBatch>();
  RowBatch rows{.lines = std::move(rest_), .first = line_, .line_numbers = {}};
  rest_.clear();
  std::size_t end = std::string::npos;  // of the last complete line
  while (end == std::string::npos || rows.lines.size() < kBatchBytes) {
    const std::size_t before = rows.lines.size();
    DS_ASSIGN_OR_RETURN(const bool more, stream_.ReadMore(kBatchBytes, &rows.lines));
    if (!more) {
      at_end_ = true;
      return std::optional(std::move(rows));
    }
    const std::size_t newline = std::string_view(rows.lines).substr(before).rfind('\n');
    if (newline != std::string_view::npos) end = before + newline + 1;
    if (end == std::string::npos && rows.lines.size() > kLongestRow) {
      return InvalidArgumentError(ShortenPath(stream_.path()) + ":" + std::to_string(line_) +
                                  ": the line has more than " + ByteSize(kLongestRow));
    }
  }
  rest_ = rows.lines.substr(end);
  rows.lines.resize(end);
  line_ += static_cast<std::uint64_t>(std::count(rows.lines.begin(), rows.lines.end(), '\n'));
  return std::optional(std::move(rows));
}

// The full text is held in memory, several times while it is split.
constexpr std::uint64_t kLargestText = std::uint64_t{1} << 30;

std::uint64_t SizeOf(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

Status TooLarge(const fs::path& path) {
  return InvalidArgumentError(ShortenPath(path) + ": a text of more than " +
                              ByteSize(kLargestText) +
                              " is not tokenized as one; make it a .jsonl file, a document a line");
}

Status CheckFile(const DataFile& file) {
  if (file.kind == DataKind::kTokens) {
    return InvalidArgumentError(ShortenPath(file.path) + ": the file holds tokens, not a text");
  }
  return file.kind == DataKind::kText && SizeOf(file.path) > kLargestText ? TooLarge(file.path)
                                                                          : OkStatus();
}

}  // namespace

StatusOr<DocumentReader> DocumentReader::Open(const std::vector<std::string>& paths,
                                              std::string field) {
  DocumentReader reader;
  reader.field_ = std::move(field);
  DS_ASSIGN_OR_RETURN(reader.data_, ListDataFiles(paths));
  for (const DataFile& file : reader.data_.files) {
    DS_RETURN_IF_ERROR(CheckFile(file));
    reader.total_bytes_ += SizeOf(file.path);
  }
  return reader;
}

StatusOr<DocumentBatch> DocumentReader::ReadText(const DataFile& file) {
  DS_ASSIGN_OR_RETURN(ByteStream stream, ByteStream::Open(file.path));
  finished_bytes_ += SizeOf(file.path);
  DocumentBatch batch{.path = file.path, .bytes = {}, .done_bytes = finished_bytes_};
  bool more = true;
  while (more) {
    DS_ASSIGN_OR_RETURN(more, stream.ReadMore(kBatchBytes, &batch.bytes));
    if (batch.bytes.size() > kLargestText) return TooLarge(file.path);
  }
  return batch;
}

StatusOr<std::unique_ptr<RowSource>> DocumentReader::OpenRows(const DataFile& file) const {
  if (file.kind == DataKind::kRows) {
    DS_ASSIGN_OR_RETURN(RowFile rows, RowFile::Open(file.path));
    return std::unique_ptr<RowSource>(std::make_unique<RowFile>(std::move(rows)));
  }
  DS_ASSIGN_OR_RETURN(ByteStream stream, ByteStream::Open(file.path));
  std::unique_ptr<RowSource> rows;
  if (file.kind == DataKind::kLines) rows = std::make_unique<LineRows>(std::move(stream));
  if (file.kind == DataKind::kJson) rows = std::make_unique<JsonRows>(std::move(stream), field_);
  if (file.kind == DataKind::kTable) {
    rows = std::make_unique<TableRows>(std::move(stream), file.separator);
  }
  return rows;
}

StatusOr<std::optional<DocumentBatch>> DocumentReader::Next() {
  while (next_file_ < data_.files.size()) {
    const DataFile& file = data_.files[next_file_];
    if (file.kind == DataKind::kText) {
      ++next_file_;
      DS_ASSIGN_OR_RETURN(DocumentBatch batch, ReadText(file));
      return std::optional(std::move(batch));
    }
    if (rows_ == nullptr) {
      DS_ASSIGN_OR_RETURN(rows_, OpenRows(file));
    }
    DS_ASSIGN_OR_RETURN(auto rows, rows_->Next());
    if (!rows) {
      rows_.reset();
      ++next_file_;
      finished_bytes_ += SizeOf(file.path);
      continue;
    }
    return std::optional(DocumentBatch{.path = file.path,
                                       .bytes = std::move(rows->lines),
                                       .lines = true,
                                       .first_line = rows->first,
                                       .line_numbers = std::move(rows->line_numbers),
                                       .done_bytes = finished_bytes_ + rows_->position()});
  }
  return std::optional<DocumentBatch>();
}

Status ForEachDocument(const DocumentBatch& batch, const UseOfText& use) {
  const std::string name = ShortenPath(batch.path);
  if (!batch.lines) return batch.bytes.empty() ? OkStatus() : use(batch.bytes, name);
  std::string changed;
  std::uint64_t line = 0;
  for (std::string_view rest = batch.bytes; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view row = rest.substr(0, end);
    if (row.find_first_not_of(" \t\r") != std::string_view::npos) {
      const std::uint64_t number =
          batch.line_numbers.empty() ? batch.first_line + line : batch.line_numbers[line];
      DS_RETURN_IF_ERROR(use(ReplaceNaN(row, &changed), name + ":" + std::to_string(number)));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return OkStatus();
}

}  // namespace ds::tokenizer
