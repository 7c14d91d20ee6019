#include "daemon/ranks/rank_input.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace ds::daemon {
namespace {

// Returns false if `deadline` has passed.
bool AwaitWritable(int fd, RankInput::Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd writable{fd, POLLOUT, 0};
  return left.count() > 0 && ::poll(&writable, 1, static_cast<int>(left.count())) != 0;
}

}  // namespace

StatusOr<std::uint64_t> RankInput::Write(const Chunk& chunk, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  if (chunk.offset > taken_) {
    return OutOfRangeError("input starts at byte " + std::to_string(chunk.offset) +
                           ", but only the first " + std::to_string(taken_) + " were received");
  }
  const std::uint64_t known = std::min<std::uint64_t>(taken_ - chunk.offset, chunk.data.size());
  const std::string_view fresh = chunk.data.substr(known);
  const std::string_view rest = WriteSome(fresh, deadline);
  taken_ += fresh.size() - rest.size();
  if (rest.empty() && chunk.end) pipe_.Reset();
  return chunk.data.size() - rest.size();
}

std::string_view RankInput::WriteSome(std::string_view data, Deadline deadline) {
  while (!data.empty() && pipe_.valid()) {
    const ssize_t written = ::write(pipe_.get(), data.data(), data.size());
    if (written >= 0) {
      data.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      if (!AwaitWritable(pipe_.get(), deadline)) return data;
    } else if (errno != EINTR) {
      pipe_.Reset();  // EPIPE: the rank has closed its input
    }
  }
  return {};
}

}  // namespace ds::daemon
