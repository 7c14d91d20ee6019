#include "runtime/comm/net/peer_link.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <type_traits>

namespace ds::comm {
namespace {

// Frames read from one peer before the others are served.
constexpr int kFramesPerRound = 64;
// Initial allocation for a frame without a posted receive.
constexpr std::size_t kFirstCapacity = std::size_t{1} << 20;
// Maximum length of a peer's cause.
constexpr std::size_t kMaxCause = 4096;

bool IsCalls(FrameChannel channel) {
  return channel == FrameChannel::kCollective || channel == FrameChannel::kMessage;
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

std::string DescribeEnd(int error, const std::string& where) {
  if (error == 0) return "closed its connection";
  return "is not connected any more" + where + ": " + std::string(std::strerror(error));
}

}  // namespace

StatusOr<std::uint64_t> PeerLink::Send(const FrameHeader& header,
                                       std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<FrameHeader>);
  outgoing_.push_back({.header = header, .rest = bytes});
  const std::uint64_t number = ++sends_asked_;
  DS_RETURN_IF_ERROR(Write());
  return number;
}

StatusOr<std::uint64_t> PeerLink::Receive(const FrameHeader& header, std::span<std::byte> bytes) {
  Queue& queue = queues_[KeyOf(header)];
  queue.posted.push_back({.header = header, .bytes = bytes});
  const std::uint64_t number = ++queue.asked;
  DS_RETURN_IF_ERROR(TakeBuffered(header, &queue));
  // Data left in the socket may be for this receive, or block it.
  if (!IsInFrame() && IsAnythingAwaited() && ended_.empty()) DS_RETURN_IF_ERROR(FindDestination());
  return number;
}

bool PeerLink::IsReceived(const FrameHeader& header, std::uint64_t number) {
  return queues_[KeyOf(header)].done >= number;
}

bool PeerLink::HasUnfinished(GroupId group) const {
  for (const auto& [key, queue] : queues_) {
    if (std::get<GroupId>(key) == group && !queue.posted.empty()) return true;
  }
  return std::any_of(outgoing_.begin(), outgoing_.end(), [&](const Outgoing& frame) {
    return frame.header.group == group && IsCalls(frame.header.channel);
  });
}

bool PeerLink::IsAnythingAwaited() const {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const auto& entry) { return !entry.second.posted.empty(); });
}

void PeerLink::EndIfSilent(std::chrono::seconds silence) {
  if (!ended_.empty()) return;
  const PeerRails::Rail* const silent = rails_.FindSilent(silence);
  if (silent == nullptr) return;
  is_unreachable_ = true;
  ended_ = "is on a host that has not answered" + rails_.Describe(*silent) + " for " +
           std::to_string(silence.count()) + " s";
}

short PeerLink::events() const {
  if (!ended_.empty()) return 0;
  return static_cast<short>((IsInFrame() ? POLLIN : POLLRDHUP) | (outgoing_.empty() ? 0 : POLLOUT));
}

Status PeerLink::NotifyWaiting() {
  if (has_given_up_) return OkStatus();
  outgoing_.push_back({.header = {.channel = FrameChannel::kWaits}, .rest = {}});
  return Write();
}

void PeerLink::End(int error, const std::string& where) {
  ended_ = DescribeEnd(error, where);
  is_unreachable_ = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

Status PeerLink::Write() {
  while (HasToWrite()) {
    Outgoing& next = outgoing_.front();
    const auto header = std::as_bytes(std::span(&next.header, 1)).subspan(next.of_header);
    next.has_begun = true;
    const ssize_t written = rails_.Write(header, next.rest);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && WouldBlock(errno)) return OkStatus();
    if (written < 0) {
      const int error = errno;
      DS_RETURN_IF_ERROR(ReadToTheEnd());
      if (ended_.empty()) End(error, rails_.DescribeWriting());
      return OkStatus();
    }
    const auto taken = static_cast<std::size_t>(written);
    const std::size_t of_header = std::min(taken, header.size());
    next.of_header += of_header;
    next.rest = next.rest.subspan(taken - of_header);
    bytes_sent_ += taken;
    if (next.of_header < sizeof(FrameHeader) || !next.rest.empty()) continue;
    if (next.header.channel == FrameChannel::kEnd) {
      rails_.EndWriting();  // the peer reads all earlier data before it sees the end
    } else if (next.header.channel != FrameChannel::kWaits) {
      ++sends_done_;
    }
    outgoing_.pop_front();
  }
  return OkStatus();
}

Status PeerLink::Read() {
  bool more = !has_given_up_;
  for (int frames = 0; frames < kFramesPerRound && more && ended_.empty(); ++frames) {
    DS_RETURN_IF_ERROR(ReadFrame(&more));
  }
  return OkStatus();
}

Status PeerLink::ReadToTheEnd() {
  has_hung_up_ = true;
  if (!IsInFrame() && !has_given_up_) DS_RETURN_IF_ERROR(FindDestination());
  return Read();
}

// Reads up to the end of a header or of a frame. Sets `more` to whether more data may follow.
Status PeerLink::ReadFrame(bool* more) {
  *more = false;
  if (!IsInFrame()) return OkStatus();
  const bool in_header = header_read_ < sizeof(FrameHeader);
  const auto header = std::as_writable_bytes(std::span(&header_, 1));
  const std::span<std::byte> to = in_header ? header.subspan(header_read_) : rest_;
  if (!to.empty()) {
    const ssize_t got = rails_.Read(to);
    if (got < 0 && (errno == EINTR || WouldBlock(errno))) return OkStatus();
    if (got <= 0) {
      End(got == 0 ? 0 : errno, rails_.DescribeReading());
      return OkStatus();
    }
    bytes_received_ += static_cast<std::uint64_t>(got);
    if (in_header) {
      header_read_ += static_cast<std::size_t>(got);
    } else {
      rest_ = rest_.subspan(static_cast<std::size_t>(got));
    }
  }
  *more = true;
  if (in_header) return header_read_ == sizeof(FrameHeader) ? FindDestination() : OkStatus();
  return rest_.empty() ? FinishFrame() : OkStatus();
}

// Selects the destination of the frame after its header has been read.
Status PeerLink::FindDestination() {
  const bool is_end = header_.channel == FrameChannel::kEnd;
  const bool waits = header_.channel == FrameChannel::kWaits;
  if (header_.channel > FrameChannel::kWaits || !IsCall(header_.call) ||
      (is_end && header_.bytes > kMaxCause) || (waits && header_.bytes > 0)) {
    return InternalError(name_ + " sent an invalid frame");
  }
  waits_ = waits;
  if (waits) {
    header_read_ = 0;
    return OkStatus();
  }
  Queue& queue = queues_[KeyOf(header_)];
  if (!queue.posted.empty()) {
    const Posted& receive = queue.posted.front();
    DS_RETURN_IF_ERROR(CheckMatch(receive.header, header_));
    rest_ = receive.bytes;
    keeping_ = false;
    has_destination_ = true;
  } else if (header_.channel != FrameChannel::kCollective || IsAnythingAwaited() || has_hung_up_) {
    queue.buffered.push_back({header_, {}});
    rest_ = {};
    keeping_ = true;
    has_destination_ = true;
  }
  return has_destination_ && rest_.empty() ? FinishFrame() : OkStatus();
}

// Requires that `bytes` is full.
Status PeerLink::GrowBuffered(std::vector<std::byte>* bytes) {
  const std::size_t here = bytes->size();
  const std::size_t capacity =
      std::min<std::uint64_t>(header_.bytes - here, std::max(here, kFirstCapacity));
  try {
    bytes->resize(here + capacity);
  } catch (const std::exception&) {
    return ResourceExhaustedError("there is no memory for the " + std::to_string(header_.bytes) +
                                  " bytes that " + name_ + " sends");
  }
  rest_ = std::span(*bytes).subspan(here);
  return OkStatus();
}

// Called when the destination is full; the frame may have more bytes.
Status PeerLink::FinishFrame() {
  Queue& queue = queues_[KeyOf(header_)];
  if (keeping_ && queue.buffered.back().bytes.size() < header_.bytes) {
    return GrowBuffered(&queue.buffered.back().bytes);
  }
  if (!keeping_) {
    queue.posted.pop_front();
    ++queue.done;
  }
  header_read_ = 0;
  has_destination_ = false;
  if (header_.channel != FrameChannel::kEnd) return OkStatus();
  const std::vector<std::byte>& bytes = queue.buffered.back().bytes;
  end_cause_.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return UnavailableError(end_cause_);
}

// Called after a receive was posted: gives it the data that has arrived before.
Status PeerLink::TakeBuffered(const FrameHeader& header, Queue* queue) {
  while (!queue->posted.empty() && !queue->buffered.empty()) {
    const Posted& receive = queue->posted.front();
    BufferedFrame& buffered = queue->buffered.front();
    DS_RETURN_IF_ERROR(CheckMatch(receive.header, buffered.header));
    const bool coming_in = has_destination_ && keeping_ && KeyOf(header_) == KeyOf(header) &&
                           queue->buffered.size() == 1;
    const std::size_t here = buffered.bytes.size() - (coming_in ? rest_.size() : 0);
    if (here > 0) std::memcpy(receive.bytes.data(), buffered.bytes.data(), here);
    if (coming_in) {
      rest_ = receive.bytes.subspan(here);
      keeping_ = false;
      queue->buffered.pop_front();
      return OkStatus();
    }
    queue->buffered.pop_front();
    queue->posted.pop_front();
    ++queue->done;
  }
  return OkStatus();
}

Status PeerLink::CheckMatch(const FrameHeader& mine, const FrameHeader& theirs) const {
  if (mine.call == theirs.call && mine.bytes == theirs.bytes) return OkStatus();
  return FailedPreconditionError("the ranks disagree about a call: " + name_ + " is in " +
                                 Describe(theirs.call) + ", this rank in " + Describe(mine.call));
}

// A partly written frame must be completed, from a copy.
void PeerLink::GiveUp() {
  if (std::exchange(has_given_up_, true)) return;
  const bool is_midway = !outgoing_.empty() && outgoing_.front().has_begun;
  outgoing_.resize(is_midway ? 1 : 0);
  if (!is_midway) return;
  Outgoing& frame = outgoing_.front();
  frame.copy.assign(frame.rest.begin(), frame.rest.end());
  frame.rest = frame.copy;
}

void PeerLink::SendEndReason(std::string_view cause) {
  GiveUp();
  cause = cause.substr(0, kMaxCause);
  const auto bytes = std::as_bytes(std::span(cause));
  Outgoing& last = outgoing_.emplace_back();
  last.header = {.bytes = bytes.size(), .channel = FrameChannel::kEnd};
  last.copy.assign(bytes.begin(), bytes.end());
  last.rest = last.copy;
}

}  // namespace ds::comm
