#include "daemon/logs/log_pump.h"

#include <algorithm>
#include <utility>

namespace ds::daemon {
namespace {

// One past the last line end in `bytes`, 0 when there is none. A '\r' at the very end is not taken
// for one: the '\n' that belongs to it may be the next byte to come.
std::size_t EndOfLastLine(std::string_view bytes) {
  const std::size_t newline = bytes.rfind('\n');
  const std::size_t after_newline = newline == std::string_view::npos ? 0 : newline + 1;
  const std::string_view behind = bytes.substr(after_newline);
  if (behind.size() < 2) return after_newline;
  const std::size_t carriage_return = behind.rfind('\r', behind.size() - 2);
  return carriage_return == std::string_view::npos ? after_newline
                                                   : after_newline + carriage_return + 1;
}

}  // namespace

void LogPump::Feed(std::string_view bytes) {
  if (!rest_.empty()) {
    // Only the new bytes, and a '\r' just before them, can hold a line end.
    const bool after_return = rest_.back() == '\r' && !bytes.empty() && bytes.front() != '\n';
    std::size_t end = EndOfLastLine(bytes);
    if (end == 0 && after_return) {
      Emit(rest_, false);
      rest_.clear();
    } else if (end > 0) {
      rest_.append(bytes.substr(0, end));
      Emit(rest_, false);
      std::string().swap(rest_);  // gives a long line's memory back
      bytes.remove_prefix(end);
    }
  } else if (const std::size_t end = EndOfLastLine(bytes); end > 0) {
    Emit(bytes.substr(0, end), false);
    bytes.remove_prefix(end);
  }
  rest_.append(bytes);
  while (rest_.size() > max_line_) {
    Emit(std::string_view(rest_).substr(0, max_line_), true);
    rest_.erase(0, max_line_);
  }
}

void LogPump::Flush() {
  if (!rest_.empty()) Emit(rest_, true);
  rest_.clear();
}

void LogPump::Emit(std::string_view piece, bool partial) {
  ++pieces_;
  sink_(piece, partial);
}

void LineTail::Append(std::string_view bytes) {
  if (bytes.size() > max_bytes_) bytes.remove_prefix(bytes.size() - max_bytes_);
  bytes_.append(bytes);
  if (bytes_.size() > 2 * max_bytes_) bytes_.erase(0, bytes_.size() - max_bytes_);
}

std::string_view LineTail::Last() const {
  std::string_view tail = bytes_;
  if (tail.size() > max_bytes_) tail.remove_prefix(tail.size() - max_bytes_);
  std::size_t start = tail.size();
  for (std::size_t lines = 0; lines < max_lines_ && start > 0; ++lines) {
    // The newline that ends this line is not the one before it.
    const std::size_t newline = start < 2 ? std::string_view::npos : tail.rfind('\n', start - 2);
    start = newline == std::string_view::npos ? 0 : newline + 1;
  }
  return tail.substr(start);
}

}  // namespace ds::daemon
