#include "runtime/tokenizer/corpus/documents.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "runtime/base/byte_size.h"
#include "runtime/base/files.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBatchBytes = std::size_t{4} << 20;
// A line above this is no line, but a file of another kind.
constexpr std::size_t kLongestLine = std::size_t{1} << 30;
// The whole text is in memory, several times while it is cut.
constexpr std::uint64_t kLargestText = std::uint64_t{1} << 30;

bool HasLines(const fs::path& path) { return path.extension() == ".jsonl"; }

StatusOr<std::uint64_t> SizeOf(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return ErrnoError(errno, ShortenPath(path));
  if (S_ISDIR(info.st_mode)) {
    return InvalidArgumentError(ShortenPath(path) + " is a folder; name its files");
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (!HasLines(path) && !RowFile::IsOne(path) && size > kLargestText) {
    return InvalidArgumentError(
        ShortenPath(path) + " has " + ByteSize(size) + ", and a text of more than " +
        ByteSize(kLargestText) +
        " is not tokenized as one; make it a .jsonl file, a document a line");
  }
  return size;
}

// Appends up to `most` bytes; false at the end of the file.
StatusOr<bool> ReadMore(int fd, const fs::path& path, std::size_t most, std::string* bytes) {
  const std::size_t before = bytes->size();
  bytes->resize(before + most);
  ssize_t got = 0;
  do {
    got = ::read(fd, bytes->data() + before, most);
  } while (got < 0 && errno == EINTR);
  bytes->resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0) return ErrnoError(errno, ShortenPath(path));
  return got > 0;
}

Status UseTextOf(std::string_view line, const std::string& field, const std::string& place,
                 const UseOfText& use) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgumentError(place + ": the line is no JSON object");
  const auto found = json.find(field);
  if (found == json.end() || !found->is_string()) {
    return InvalidArgumentError(place + ": there is no text under \"" + field +
                                "\"; name another with --field");
  }
  return use(found->get_ref<const std::string&>(), place);
}

}  // namespace

StatusOr<DocumentReader> DocumentReader::Open(const std::vector<std::string>& paths) {
  DocumentReader reader;
  for (const std::string& path : paths) {
    DS_ASSIGN_OR_RETURN(const std::uint64_t size, SizeOf(path));
    if (::access(path.c_str(), R_OK) != 0) return ErrnoError(errno, ShortenPath(path));
    reader.total_bytes_ += size;
    reader.paths_.emplace_back(path);
  }
  return reader;
}

StatusOr<std::optional<DocumentBatch>> DocumentReader::Next() {
  while (!file_.valid()) {
    if (next_path_ == paths_.size()) return std::optional<DocumentBatch>();
    const fs::path& path = paths_[next_path_];
    if (RowFile::IsOne(path)) {
      DS_ASSIGN_OR_RETURN(std::optional<DocumentBatch> batch, ReadRows());
      if (batch) return batch;
      continue;
    }
    if (!HasLines(path)) {
      ++next_path_;
      DocumentBatch batch{.path = path};
      DS_ASSIGN_OR_RETURN(batch.bytes, ReadFile(path, kLargestText));
      return std::optional(std::move(batch));
    }
    file_.Reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file_.valid()) return ErrnoError(errno, ShortenPath(path));
    line_ = 1;
  }
  DS_ASSIGN_OR_RETURN(DocumentBatch batch, ReadLines());
  return std::optional(std::move(batch));
}

StatusOr<std::optional<DocumentBatch>> DocumentReader::ReadRows() {
  const fs::path& path = paths_[next_path_];
  if (!rows_) {
    DS_ASSIGN_OR_RETURN(RowFile opened, RowFile::Open(path));
    rows_ = std::move(opened);
  }
  DS_ASSIGN_OR_RETURN(auto rows, rows_->Next());
  if (!rows) {
    rows_.reset();
    ++next_path_;
    return std::optional<DocumentBatch>();
  }
  return std::optional(DocumentBatch{
      .path = path, .bytes = std::move(rows->lines), .lines = true, .first_line = rows->first});
}

StatusOr<DocumentBatch> DocumentReader::ReadLines() {
  DocumentBatch batch{.path = paths_[next_path_], .lines = true, .first_line = line_};
  batch.bytes = std::move(rest_);
  rest_.clear();
  std::size_t end = std::string::npos;  // of the last whole line
  while (end == std::string::npos || batch.bytes.size() < kBatchBytes) {
    const std::size_t before = batch.bytes.size();
    DS_ASSIGN_OR_RETURN(const bool more,
                        ReadMore(file_.get(), batch.path, kBatchBytes, &batch.bytes));
    if (!more) {
      file_.Reset();
      ++next_path_;
      return batch;
    }
    const std::size_t newline = std::string_view(batch.bytes).substr(before).rfind('\n');
    if (newline != std::string_view::npos) end = before + newline + 1;
    if (end == std::string::npos && batch.bytes.size() > kLongestLine) {
      return InvalidArgumentError(ShortenPath(batch.path) + ":" + std::to_string(line_) +
                                  ": the line has more than " + ByteSize(kLongestLine));
    }
  }
  rest_ = batch.bytes.substr(end);
  batch.bytes.resize(end);
  line_ += static_cast<std::uint64_t>(std::count(batch.bytes.begin(), batch.bytes.end(), '\n'));
  return batch;
}

Status ForEachText(const DocumentBatch& batch, const std::string& field, const UseOfText& use) {
  if (!batch.lines) return ForEachDocument(batch, use);
  return ForEachDocument(batch, [&](std::string_view line, const std::string& place) {
    return UseTextOf(line, field, place, use);
  });
}

Status ForEachDocument(const DocumentBatch& batch, const UseOfText& use) {
  const std::string name = ShortenPath(batch.path);
  if (!batch.lines) return batch.bytes.empty() ? OkStatus() : use(batch.bytes, name);
  std::uint64_t line = batch.first_line;
  for (std::string_view rest = batch.bytes; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view row = rest.substr(0, end);
    if (row.find_first_not_of(" \t\r") != std::string_view::npos) {
      DS_RETURN_IF_ERROR(use(row, name + ":" + std::to_string(line)));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return OkStatus();
}

}  // namespace ds::tokenizer
