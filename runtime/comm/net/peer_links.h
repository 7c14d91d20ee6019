#pragma once

// PeerLinks: frames between this rank and ranks of other hosts, over connected stream
// sockets, one to each of them or one for each network (connect_peers.h makes those; peer_link.h
// has those to one peer). All groups of the rank share them.
//
// Sends and receives are posted, and a thread moves them, whatever this rank does meanwhile: also
// while it waits for others of its host, who may wait for a peer that waits for this rank.
//
// The end: who ends everything tells all peers why, and so does who hears of it, so that ranks that
// wait for each other in a row all learn the first cause.
//
// Lifetimes: posted memory stays valid, and what is sent unchanged, until its Wait has returned or
// its group was abandoned.
// Threads: one at a time per group, besides its own; End from any.
// Errors: kUnavailable when a peer that is waited for has ended, does not come in time or is on a
// host that does not answer (peer_silence.h), or one has ended everything; kFailedPrecondition when
// the ranks disagree; all name the peer. No call may follow.

#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/comm/net/peer_link.h"
#include "runtime/comm/shm/cpu_group.h"
#include "runtime/comm/shm/group_family.h"

namespace ds::comm {

// Tells what a frame is and to or from whom it goes.
struct Frame {
  int peer = 0;
  GroupId group = 0;
  FrameChannel channel = FrameChannel::kCollective;
  CallSignature call = {};
};

class PeerLinks {
 public:
  // No rails to this rank itself and the others of its host. `name` is what errors call it: "rank 3
  // (host 10.0.0.2)".
  struct Peer {
    PeerRails rails;
    std::string name;
  };
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // One thing that was posted. Its number among those; kNever: it will not be done.
  struct Ticket {
    int peer = 0;
    bool is_send = false;
    FrameHeader header;
    std::uint64_t number = kNever;
  };
  // `peers` by rank. The longest waits: for a peer that does not come (shm/patience.h), for a host
  // that is silent.
  PeerLinks(std::vector<Peer> peers, std::chrono::milliseconds timeout,
            std::chrono::seconds silence = std::chrono::minutes(1));
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // Called by the own thread, once, when a peer has ended everything.
  void ListenForEnd(EndListener listener);

  // Called by who waits when a peer is late or its host unreachable.
  void ListenForAbsence(AbsenceListener listener);
  // Tells all peers that this rank waits for somebody: who waits for it has to look further for the
  // one to blame.
  void TellThatItWaits();

  Ticket Send(const Frame& frame, std::span<const std::byte> bytes);
  Ticket Receive(const Frame& frame, std::span<std::byte> bytes);
  Status Wait(const Ticket& ticket);
  // When something of the group is posted that is not finished, ends everything: of a collective
  // that gives up midway the memory is its caller's again, and is not touched any more.
  void AbandonUnfinished(GroupId group);
  // Ends everything and tells all peers `cause`. The first time counts.
  void End(std::string_view cause);

  // Payload and headers that were written and read so far.
  BytesBetweenHosts bytes() const;

 private:
  void MoveFrames();
  // Lists what the thread waits for: entry [i] of both belongs together; the first is wake_'s.
  // Returns whether it has to wait: there may be bytes that poll does not know of.
  bool ListWatched(std::vector<pollfd>* watched, std::vector<PeerLink*>* owners);
  void HandleReady(const std::vector<pollfd>& watched, const std::vector<PeerLink*>& owners);
  void PassOnEnd(std::unique_lock<std::mutex>* lock);
  void SayFarewell(std::unique_lock<std::mutex>* lock);
  void Wake();
  PeerLink& LinkTo(int peer);
  bool IsDone(const Ticket& ticket);
  // The first failure ends everything: no posted memory is touched from then on.
  void FailWith(const Status& status);
  Status FailForPeer(int peer, const std::string& what, Absence::Kind absence);
  void TellPeers();

  const std::chrono::milliseconds timeout_;
  const std::chrono::seconds silence_;
  mutable std::mutex mutex_;  // guards all below but wake_
  std::condition_variable changed_;
  std::vector<std::optional<PeerLink>> links_;
  Status failure_;            // the first
  bool has_told_ = false;     // the peers why it ends
  std::string end_cause_;     // what a peer has told; "" while none has
  EndListener end_listener_;  // none yet, or not any more
  AbsenceListener absence_listener_;
  bool ending_ = false;
  UniqueFd wake_;        // readable: there is something new to wait for
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace ds::comm
