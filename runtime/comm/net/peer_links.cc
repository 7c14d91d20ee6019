#include "runtime/comm/net/peer_links.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <type_traits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/comm/net/peer_silence.h"

namespace ds::comm {
namespace {

using std::chrono::steady_clock;

// Read from one peer before the others have their turn.
constexpr int kFramesPerTurn = 64;

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

std::string DescribeEnd(int error) {
  return error == 0 ? "closed its connection"
                    : "is not connected any more: " + std::string(std::strerror(error));
}

}  // namespace

PeerLinks::PeerLinks(std::vector<Peer> peers, std::chrono::milliseconds timeout,
                     std::chrono::seconds silence)
    : timeout_(timeout), silence_(silence) {
  static_assert(std::is_trivially_copyable_v<Header>);
  for (Peer& peer : peers) {
    Link& link = links_.emplace_back();
    link.stream = std::move(peer.stream);
    if (link.stream != nullptr) EndWhenSilent(link.stream->fd(), silence);
    link.name = std::move(peer.name);
  }
  wake_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  DS_CHECK(wake_.valid());
  thread_ = std::jthread([this] { MoveFrames(); });
}

PeerLinks::~PeerLinks() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  Wake();
}

void PeerLinks::Wake() { ::eventfd_write(wake_.get(), 1); }

std::uint64_t PeerLinks::bytes_sent() const {
  const std::lock_guard lock(mutex_);
  return bytes_sent_;
}

PeerLinks::Ticket PeerLinks::Send(const Frame& frame, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  Link& link = links_[static_cast<std::size_t>(frame.peer)];
  DS_CHECK(link.stream != nullptr);
  const auto channel = static_cast<std::uint64_t>(frame.channel);
  link.outgoing.push_back(
      {.header = {.bytes = bytes.size(), .channel = channel, .call = frame.call}, .bytes = bytes});
  const Ticket ticket = {frame.peer, kSends, ++link.asked[kSends]};
  if (failure_.ok()) failure_ = Write(link);
  if (!link.outgoing.empty()) Wake();
  return ticket;
}

PeerLinks::Ticket PeerLinks::Receive(const Frame& frame, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  Link& link = links_[static_cast<std::size_t>(frame.peer)];
  DS_CHECK(link.stream != nullptr);
  const int channel = static_cast<int>(frame.channel);
  link.posted[channel].push_back({.header = {.bytes = bytes.size(),
                                             .channel = static_cast<std::uint64_t>(channel),
                                             .call = frame.call},
                                  .bytes = bytes});
  const Ticket ticket = {frame.peer, channel, ++link.asked[channel]};
  const bool was_left = !IsInFrame(link);
  if (failure_.ok()) failure_ = TakeKept(link);
  if (was_left) Wake();
  return ticket;
}

Status PeerLinks::Wait(const Ticket& ticket) {
  Link& link = links_[static_cast<std::size_t>(ticket.peer)];
  const auto deadline = steady_clock::now() + timeout_;
  std::unique_lock lock(mutex_);
  while (failure_.ok() && link.done[ticket.queue] < ticket.number) {
    if (!link.ended.empty()) {
      return Fail(UnavailableError(link.name + " " + link.ended + " while this rank was in " +
                                   NameCall(link, ticket) +
                                   "; see that rank's own output for the reason"));
    }
    if (steady_clock::now() >= deadline) {
      return Fail(UnavailableError(link.name + " did not come within " +
                                   std::to_string(timeout_.count() / 1000) +
                                   " s while this rank was in " + NameCall(link, ticket)));
    }
    const auto look = steady_clock::now() + std::chrono::milliseconds(silence_) / 4;
    if (changed_.wait_until(lock, std::min(deadline, look)) == std::cv_status::timeout &&
        link.ended.empty() && IsSilent(link.stream->fd(), silence_)) {
      link.ended =
          "is on a host that has not answered for " + std::to_string(silence_.count()) + " s";
    }
  }
  return failure_;
}

void PeerLinks::AbandonUnfinished() {
  const std::lock_guard lock(mutex_);
  const bool is_unfinished = std::any_of(links_.begin(), links_.end(), [](const Link& link) {
    return link.done[kSends] < link.asked[kSends] || !link.posted[0].empty() ||
           !link.posted[1].empty();
  });
  if (!is_unfinished || !failure_.ok()) return;
  failure_ = UnavailableError("this rank has given up a collective");
  Wake();
}

Status PeerLinks::Fail(Status failure) {
  failure_ = std::move(failure);
  Wake();
  return failure_;
}

// What the peer is waited for with.
std::string PeerLinks::NameCall(const Link& link, const Ticket& ticket) {
  return Describe(ticket.queue == kSends ? link.outgoing.front().header.call
                                         : link.posted[ticket.queue].front().header.call);
}

// A frame without a place is left where it is until this rank asks for it.
bool PeerLinks::IsInFrame(const Link& link) {
  return link.header_read < sizeof(Header) || link.has_place;
}

void PeerLinks::MoveFrames() {
  std::vector<pollfd> watched;
  std::vector<Link*> owners;
  std::unique_lock lock(mutex_);
  while (!ending_ && failure_.ok()) {
    const bool has_to_wait = ListWatched(&watched, &owners);
    lock.unlock();
    ::poll(watched.data(), watched.size(), has_to_wait ? -1 : 0);
    lock.lock();
    HandleReady(watched, owners);
    changed_.notify_all();
  }
}

bool PeerLinks::ListWatched(std::vector<pollfd>* watched, std::vector<Link*>* owners) {
  *watched = {{wake_.get(), POLLIN, 0}};
  *owners = {nullptr};
  bool has_to_wait = true;
  for (Link& link : links_) {
    if (!link.ended.empty() || link.stream == nullptr) continue;
    const int events = (IsInFrame(link) ? POLLIN : 0) | (link.outgoing.empty() ? 0 : POLLOUT);
    if (events == 0) continue;
    watched->push_back({link.stream->fd(), static_cast<short>(events), 0});
    owners->push_back(&link);
    if (IsInFrame(link) && link.stream->HoldsUnread()) has_to_wait = false;
  }
  return has_to_wait;
}

void PeerLinks::HandleReady(const std::vector<pollfd>& watched, const std::vector<Link*>& owners) {
  eventfd_t ignored = 0;
  if (watched[0].revents != 0) ::eventfd_read(wake_.get(), &ignored);
  for (std::size_t i = 1; i < watched.size() && failure_.ok(); ++i) {
    if ((watched[i].revents & POLLOUT) != 0) failure_ = Write(*owners[i]);
    const bool readable = (watched[i].revents & ~POLLOUT) != 0 || owners[i]->stream->HoldsUnread();
    if (failure_.ok() && readable) failure_ = Read(*owners[i]);
  }
}

Status PeerLinks::Write(Link& link) {
  while (!link.outgoing.empty() && link.ended.empty()) {
    Outgoing& next = link.outgoing.front();
    const auto head = std::as_bytes(std::span(&next.header, 1));
    const std::size_t of_head = std::min(next.written, head.size());
    const ssize_t written =
        link.stream->Write(head.subspan(of_head), next.bytes.subspan(next.written - of_head));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && WouldBlock(errno)) return OkStatus();
    if (written < 0) {
      const int error = errno;
      DS_RETURN_IF_ERROR(Read(link));  // what it has said before it went
      if (link.ended.empty()) link.ended = DescribeEnd(error);
      return OkStatus();
    }
    next.written += static_cast<std::size_t>(written);
    bytes_sent_ += static_cast<std::uint64_t>(written);
    if (next.written < sizeof(Header) + next.bytes.size()) continue;
    link.outgoing.pop_front();
    ++link.done[kSends];
  }
  return OkStatus();
}

Status PeerLinks::Read(Link& link) {
  bool more = true;
  for (int frames = 0; frames < kFramesPerTurn && more && link.ended.empty(); ++frames) {
    DS_RETURN_IF_ERROR(ReadFrame(link, &more));
  }
  return OkStatus();
}

// Reads up to the end of a header or of a frame; `more` = there may be more behind it.
Status PeerLinks::ReadFrame(Link& link, bool* more) {
  *more = false;
  const bool in_header = link.header_read < sizeof(Header);
  if (!in_header && !link.has_place) return OkStatus();
  const auto header = std::as_writable_bytes(std::span(&link.header, 1));
  const std::span<std::byte> to = in_header ? header.subspan(link.header_read) : link.rest;
  if (!to.empty()) {
    const ssize_t got = link.stream->Read(to);
    if (got < 0 && (errno == EINTR || WouldBlock(errno))) return OkStatus();
    if (got <= 0) {
      link.ended = DescribeEnd(got == 0 ? 0 : errno);
      return OkStatus();
    }
    if (in_header) {
      link.header_read += static_cast<std::size_t>(got);
    } else {
      link.rest = link.rest.subspan(static_cast<std::size_t>(got));
    }
  }
  *more = true;
  if (in_header && link.header_read == sizeof(Header)) return FindPlace(link);
  if (!in_header && link.rest.empty()) FinishFrame(link);
  return OkStatus();
}

// Finds where the bytes go of the frame whose header has been read.
Status PeerLinks::FindPlace(Link& link) {
  if (link.header.channel > 1) return InternalError(link.name + " sent what is no frame");
  const auto channel = static_cast<std::size_t>(link.header.channel);
  if (!link.posted[channel].empty()) {
    const Posted& receive = link.posted[channel].front();
    DS_RETURN_IF_ERROR(CheckMatch(link, receive.header, link.header));
    link.rest = receive.bytes;
    link.keeping = false;
    link.has_place = true;
  } else if (link.header.channel == static_cast<std::uint64_t>(FrameChannel::kMessage)) {
    try {
      link.kept.push_back({link.header, std::vector<std::byte>(link.header.bytes)});
    } catch (const std::exception&) {
      return ResourceExhaustedError("there is no memory for the " +
                                    std::to_string(link.header.bytes) + " bytes that " + link.name +
                                    " sends");
    }
    link.rest = link.kept.back().bytes;
    link.keeping = true;
    link.has_place = true;
  }
  if (link.has_place && link.rest.empty()) FinishFrame(link);
  return OkStatus();
}

void PeerLinks::FinishFrame(Link& link) {
  if (!link.keeping) {
    link.posted[link.header.channel].pop_front();
    ++link.done[link.header.channel];
  }
  link.header_read = 0;
  link.has_place = false;
}

// A receive was posted: what has come for it before is given to it.
Status PeerLinks::TakeKept(Link& link) {
  auto& messages = link.posted[static_cast<std::size_t>(FrameChannel::kMessage)];
  while (!messages.empty() && !link.kept.empty()) {
    const Posted& receive = messages.front();
    Kept& kept = link.kept.front();
    DS_RETURN_IF_ERROR(CheckMatch(link, receive.header, kept.header));
    const bool coming_in = link.has_place && link.keeping && link.kept.size() == 1;
    const std::size_t here = kept.bytes.size() - (coming_in ? link.rest.size() : 0);
    if (here > 0) std::memcpy(receive.bytes.data(), kept.bytes.data(), here);
    if (coming_in) {
      link.rest = receive.bytes.subspan(here);
      link.keeping = false;
      link.kept.pop_front();
      return OkStatus();
    }
    link.kept.pop_front();
    messages.pop_front();
    ++link.done[static_cast<std::size_t>(FrameChannel::kMessage)];
  }
  return IsInFrame(link) || !link.ended.empty() ? OkStatus() : FindPlace(link);
}

Status PeerLinks::CheckMatch(const Link& link, const Header& mine, const Header& theirs) const {
  if (mine.call == theirs.call && mine.bytes == theirs.bytes) return OkStatus();
  return FailedPreconditionError("the ranks disagree about a call: " + link.name + " is in " +
                                 Describe(theirs.call) + ", this rank in " + Describe(mine.call));
}

}  // namespace ds::comm
