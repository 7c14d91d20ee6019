#pragma once

// LogPump: turns the bytes of one output stream of a rank into pieces that end where a line ends,
// so that lines of several ranks never mix.
//
// A piece ends behind the last '\n', or behind the last '\r' that is followed by something else
// than
// '\n' (a progress bar redraws itself with '\r'). A line that grows beyond `max_line`, or that is
// flushed before its end, is cut into partial pieces. The pieces of a stream, one after another,
// are its bytes exactly.
//
// Threads: one at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ds::daemon {

inline constexpr std::size_t kMaxAssembledLine = 1024 * 1024;

class LogPump {
 public:
  // `partial`: the piece ends inside a line.
  using Sink = std::function<void(std::string_view piece, bool partial)>;

  explicit LogPump(Sink sink, std::size_t max_line = kMaxAssembledLine)
      : sink_(std::move(sink)), max_line_(max_line) {}

  // Takes the next bytes of the stream. The sink's view is valid during its call only.
  void Feed(std::string_view bytes);

  // Passes on what is left of an unfinished line, as a partial piece: the stream has ended, or the
  // line has waited long enough for its end.
  void Flush();

  // Whether there is such a line, and how many pieces have been passed on so far.
  bool waits() const { return !rest_.empty(); }
  std::uint64_t pieces() const { return pieces_; }

 private:
  void Emit(std::string_view piece, bool partial);

  Sink sink_;
  std::size_t max_line_;
  std::uint64_t pieces_ = 0;
  std::string rest_;  // the beginning of a line whose end has not come yet
};

// The last lines of a stream, bounded in lines and bytes: what a verdict quotes.
class LineTail {
 public:
  LineTail(std::size_t max_lines, std::size_t max_bytes)
      : max_lines_(max_lines), max_bytes_(max_bytes) {}

  void Append(std::string_view bytes);
  // Returns at most max_lines lines and max_bytes bytes, from a line's start where possible.
  std::string_view Last() const;

 private:
  std::size_t max_lines_;
  std::size_t max_bytes_;
  std::string bytes_;  // at most twice max_bytes_, trimmed now and then rather than at every call
};

}  // namespace ds::daemon
