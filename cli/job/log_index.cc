#include "cli/job/log_index.h"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace ds::cli {
namespace {

constexpr std::int64_t kRowEveryNanos = 1'000'000;
constexpr std::size_t kMaxKeptBytes = 64 * 1024;

}  // namespace

Status LogIndex::Add(int rank, bool is_stderr, std::uint64_t bytes, std::int64_t unix_nanos) {
  Stream& stream = streams_[{rank, is_stderr}];
  const std::uint64_t offset = stream.size;
  stream.size += bytes;
  // A clock that is set back makes rows, too.
  const std::int64_t since = unix_nanos - stream.last_row_nanos.value_or(0);
  if (stream.last_row_nanos.has_value() && since >= 0 && since < kRowEveryNanos) return OkStatus();
  stream.last_row_nanos = unix_nanos;
  std::array<char, 128> row{};
  std::snprintf(row.data(), row.size(),
                R"({"unix_nanos":%)" PRId64 R"(,"rank":%d,"stream":"%s","offset":%)" PRIu64 "}\n",
                unix_nanos, rank, is_stderr ? "err" : "out", offset);
  rows_ += row.data();
  return rows_.size() < kMaxKeptBytes ? OkStatus() : Flush();
}

Status LogIndex::Flush() {
  if (rows_.empty()) return OkStatus();
  if (!file_.has_value()) {
    DS_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(folder_ / "index.jsonl"));
    file_.emplace(std::move(file));
  }
  return file_->Append(std::exchange(rows_, {}));
}

}  // namespace ds::cli
