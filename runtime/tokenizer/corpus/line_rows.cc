#include "runtime/tokenizer/corpus/line_rows.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/byte_size.h"
#include "runtime/base/files.h"

namespace ds::tokenizer {

StatusOr<std::optional<Rows>> LineRows::Next() {
  if (at_end_) return std::optional<Rows>();
  Rows rows{.lines = std::move(rest_), .first = line_, .places = {}};
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

}  // namespace ds::tokenizer
