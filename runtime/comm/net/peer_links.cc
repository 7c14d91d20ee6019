#include "runtime/comm/net/peer_links.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/comm/shm/wait_timeout.h"

namespace ds::comm {
namespace {

using std::chrono::steady_clock;

// Interval at which a waiting rank checks that the peer's host answers.
constexpr std::chrono::milliseconds kLookEvery{1000};
// Timeout for sending the cause to peers that accept no bytes.
constexpr int kFarewellMs = 1000;

}  // namespace

PeerLinks::PeerLinks(std::vector<Peer> peers, std::chrono::milliseconds timeout,
                     std::chrono::seconds silence)
    : timeout_(timeout), silence_(silence), links_(peers.size()) {
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    Peer& peer = peers[rank];
    if (peer.rails.empty()) continue;
    peer.rails.EndWhenSilent(silence);
    links_[rank].emplace(std::move(peer.rails), std::move(peer.name));
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

void PeerLinks::Wake() {
  ::eventfd_write(wake_.get(), 1);
  changed_.notify_all();
}

void PeerLinks::ListenForEnd(EndListener listener) {
  std::unique_lock lock(mutex_);
  if (end_cause_.empty()) {
    end_listener_ = std::move(listener);
    return;
  }
  const std::string cause = end_cause_;
  lock.unlock();
  listener(cause);
}

BytesBetweenHosts PeerLinks::bytes() const {
  const std::lock_guard lock(mutex_);
  BytesBetweenHosts sum;
  for (const auto& link : links_) {
    if (!link) continue;
    sum.sent += link->bytes_sent();
    sum.received += link->bytes_received();
  }
  return sum;
}

PeerLink& PeerLinks::LinkTo(int peer) {
  auto& link = links_[static_cast<std::size_t>(peer)];
  DS_CHECK(link.has_value());
  return *link;
}

PeerLinks::Ticket PeerLinks::Send(const Frame& frame, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  PeerLink& link = LinkTo(frame.peer);
  Ticket ticket{.peer = frame.peer,
                .is_send = true,
                .header = {.bytes = bytes.size(),
                           .group = frame.group,
                           .channel = frame.channel,
                           .call = frame.call}};
  if (!failure_.ok()) return ticket;
  const auto number = link.Send(ticket.header, bytes);
  FailWith(number.status());
  if (number.ok()) ticket.number = *number;
  if (link.HasToWrite()) Wake();
  return ticket;
}

PeerLinks::Ticket PeerLinks::Receive(const Frame& frame, std::span<std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  PeerLink& link = LinkTo(frame.peer);
  Ticket ticket{.peer = frame.peer,
                .is_send = false,
                .header = {.bytes = bytes.size(),
                           .group = frame.group,
                           .channel = frame.channel,
                           .call = frame.call}};
  if (!failure_.ok()) return ticket;
  const short events = link.events();
  const auto number = link.Receive(ticket.header, bytes);
  FailWith(number.status());
  if (number.ok()) ticket.number = *number;
  if (link.events() != events) Wake();
  return ticket;
}

bool PeerLinks::IsDone(const Ticket& ticket) {
  PeerLink& link = LinkTo(ticket.peer);
  return ticket.is_send ? link.IsSent(ticket.number)
                        : link.IsReceived(ticket.header, ticket.number);
}

Status PeerLinks::Wait(const Ticket& ticket) {
  const auto look_every = std::min(kLookEvery, std::chrono::milliseconds(silence_) / 4);
  std::unique_lock lock(mutex_);
  WaitTimeout wait_timeout(timeout_, look_every, steady_clock::now());
  auto next_look = steady_clock::now() + look_every;
  PeerLink& link = LinkTo(ticket.peer);
  const std::string doing = "this rank was in " + Describe(ticket.header.call);
  bool has_notified = false;
  bool is_patient = true;
  while (!IsDone(ticket)) {
    if (!failure_.ok()) return Status(failure_.code(), failure_.message() + "; " + doing);
    if (!link.ended().empty()) {
      return FailForPeer(
          ticket.peer,
          link.ended() + " while " + doing + "; see that rank's own output for the reason",
          link.is_unreachable() ? Absence::Kind::kUnreachable : Absence::Kind::kNone);
    }
    if (wait_timeout.is_half_over() && !std::exchange(has_notified, true)) NotifyPeers();
    if (wait_timeout.is_over() && link.waits() && std::exchange(is_patient, false)) {
      // The peer will name the rank for which it waits, if it began to wait later than this rank.
      wait_timeout = WaitTimeout(timeout_, look_every, steady_clock::now());
    }
    if (wait_timeout.is_over()) {
      return FailForPeer(
          ticket.peer,
          "did not arrive within " + std::to_string(timeout_.count() / 1000) + " s while " + doing,
          Absence::Kind::kLate);
    }
    changed_.wait_for(lock, wait_timeout.until_look());
    // Count time also if other ranks' frames have ended the wait.
    const auto now = steady_clock::now();
    wait_timeout.Look(now);
    if (now < next_look) continue;
    link.EndIfSilent(silence_);
    next_look = now + look_every;
  }
  return OkStatus();
}

Status PeerLinks::FailForPeer(int peer, const std::string& what, Absence::Kind absence) {
  if (absence != Absence::Kind::kNone && absence_listener_) {
    absence_listener_({.kind = absence, .ranks = {peer}});
  }
  FailWith(UnavailableError(LinkTo(peer).name() + " " + what));
  return failure_;
}

void PeerLinks::ListenForAbsence(AbsenceListener listener) {
  const std::lock_guard lock(mutex_);
  absence_listener_ = std::move(listener);
}

void PeerLinks::NotifyWaiting() {
  const std::lock_guard lock(mutex_);
  NotifyPeers();
}

void PeerLinks::NotifyPeers() {
  for (auto& link : links_) {
    if (link && failure_.ok()) FailWith(link->NotifyWaiting());
  }
  Wake();
}

void PeerLinks::FailWith(const Status& status) {
  if (status.ok() || !failure_.ok()) return;
  failure_ = status;
  for (auto& link : links_) {
    if (link) link->GiveUp();
  }
  Wake();
}

void PeerLinks::AbandonUnfinished(GroupId group) {
  const std::lock_guard lock(mutex_);
  const bool is_unfinished = std::any_of(links_.begin(), links_.end(), [&](const auto& link) {
    return link && link->HasUnfinished(group);
  });
  if (is_unfinished) FailWith(UnavailableError("this rank has given up a collective"));
}

void PeerLinks::End(std::string_view cause) {
  const std::lock_guard lock(mutex_);
  if (has_notified_) return;
  has_notified_ = true;
  FailWith(UnavailableError(std::string(cause)));
  for (auto& link : links_) {
    if (!link) continue;
    link->SendEndReason(cause);
    FailWith(link->Write());  // send now, because this process may be about to end
  }
  Wake();
}

void PeerLinks::MoveFrames() {
  std::vector<pollfd> watched;
  std::vector<PeerLink*> owners;
  std::unique_lock lock(mutex_);
  while (!ending_ && failure_.ok()) {
    const bool has_to_wait = ListWatched(&watched, &owners);
    lock.unlock();
    ::poll(watched.data(), watched.size(), has_to_wait ? -1 : 0);
    lock.lock();
    if (failure_.ok()) HandleReady(watched, owners);
    changed_.notify_all();
  }
  PassOnEnd(&lock);
  SendFarewells(&lock);
}

bool PeerLinks::ListWatched(std::vector<pollfd>* watched, std::vector<PeerLink*>* owners) {
  *watched = {{wake_.get(), POLLIN, 0}};
  *owners = {nullptr};
  bool has_to_wait = true;
  for (auto& link : links_) {
    if (!link || link->events() == 0) continue;
    const short writing = link->read_fd() == link->write_fd() ? 0 : link->events() & POLLOUT;
    watched->push_back({link->read_fd(), static_cast<short>(link->events() & ~writing), 0});
    owners->push_back(&*link);
    if (writing != 0) {
      watched->push_back({link->write_fd(), writing, 0});
      owners->push_back(&*link);
    }
    if (link->HoldsUnread()) has_to_wait = false;
  }
  return has_to_wait;
}

void PeerLinks::HandleReady(const std::vector<pollfd>& watched,
                            const std::vector<PeerLink*>& owners) {
  eventfd_t ignored = 0;
  if (watched[0].revents != 0) ::eventfd_read(wake_.get(), &ignored);
  for (std::size_t i = 1; i < watched.size() && failure_.ok(); ++i) {
    // If a rail used only for writing is broken, the write reports it.
    const bool is_for_writing = watched[i].events == POLLOUT;
    if ((watched[i].revents & (is_for_writing ? ~0 : POLLOUT)) != 0) FailWith(owners[i]->Write());
    if (!failure_.ok()) return;
    if (is_for_writing) continue;
    if ((watched[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
      FailWith(owners[i]->ReadToTheEnd());
    } else if ((watched[i].revents & ~POLLOUT) != 0 || owners[i]->HoldsUnread()) {
      FailWith(owners[i]->Read());
    }
  }
}

// Forwards the cause received from a peer to this rank's groups and to all other peers.
void PeerLinks::PassOnEnd(std::unique_lock<std::mutex>* lock) {
  for (const auto& link : links_) {
    if (link && end_cause_.empty()) end_cause_ = link->end_cause();
  }
  if (end_cause_.empty()) return;
  const EndListener listener = std::exchange(end_listener_, nullptr);
  lock->unlock();
  if (listener) listener(end_cause_);
  End(end_cause_);
  lock->lock();
}

// Writes the remaining frames, to peers that accept bytes.
void PeerLinks::SendFarewells(std::unique_lock<std::mutex>* lock) {
  changed_.wait(*lock, [this] { return has_notified_ || ending_; });
  if (!has_notified_) return;
  while (true) {
    std::vector<pollfd> watched;
    for (auto& link : links_) {
      if (link && link->HasToWrite()) watched.push_back({link->write_fd(), POLLOUT, 0});
    }
    if (watched.empty()) return;
    lock->unlock();
    const int ready = ::poll(watched.data(), watched.size(), kFarewellMs);
    lock->lock();
    if (ready == 0) return;
    for (auto& link : links_) {
      if (link && link->HasToWrite()) FailWith(link->Write());
    }
  }
}

}  // namespace ds::comm
