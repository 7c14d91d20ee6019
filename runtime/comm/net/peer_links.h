#pragma once

// PeerLinks: sends and receives frames between this rank and ranks of other hosts, over connected
// stream sockets. Each peer has one socket, or one per network (connect_peers.h makes them;
// peer_link.h handles one peer). All groups of the rank share these links.
//
// Sends and receives are posted, and a thread runs them in the background. They proceed even while
// this rank waits for other ranks of its host, which may wait for a peer that waits for this rank.
//
// End: a rank that ends everything sends the cause to all peers, and each receiver forwards it.
// Ranks that wait for each other in a chain therefore all receive the first cause.
//
// Posted memory must stay valid, and data to be sent must stay unchanged, until its Wait has
// returned or its group was abandoned. Threads: one thread at a time per group. End may be called
// from any thread. Errors: kUnavailable when an awaited peer has ended, does not arrive in time or
// is on a host that does not answer (peer_silence.h), or when a rank has ended everything;
// kFailedPrecondition when the ranks disagree. All name the peer. Make no call after an error.

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

// Frame: identifies a frame and its peer.
struct Frame {
  int peer = 0;
  GroupId group = 0;
  FrameChannel channel = FrameChannel::kCollective;
  CallSignature call = {};
};

class PeerLinks {
 public:
  // This rank and the other ranks of its host have no rails. `name` is the rank's name in errors:
  // "rank 3 (host 10.0.0.2)".
  struct Peer {
    PeerRails rails;
    std::string name;
  };
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // Ticket: one posted transfer, with its number among the posted transfers. kNever: it will not be
  // done.
  struct Ticket {
    int peer = 0;
    bool is_send = false;
    FrameHeader header;
    std::uint64_t number = kNever;
  };
  // `peers` is indexed by rank. `timeout` limits the wait for a peer that does not arrive
  // (shm/wait_timeout.h), `silence` the wait for a host that does not answer.
  PeerLinks(std::vector<Peer> peers, std::chrono::milliseconds timeout,
            std::chrono::seconds silence = std::chrono::minutes(1));
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // Sets the listener that the background thread calls, once, when a peer has ended everything. It
  // is called at once if that has happened.
  void ListenForEnd(EndListener listener);

  // Sets the listener that Wait calls when a peer is late or its host unreachable.
  void ListenForAbsence(AbsenceListener listener);
  // Reports to all peers that this rank is waiting. A peer that waits for this rank then extends
  // its timeout once before it blames this rank.
  void NotifyWaiting();

  Ticket Send(const Frame& frame, std::span<const std::byte> bytes);
  Ticket Receive(const Frame& frame, std::span<std::byte> bytes);
  Status Wait(const Ticket& ticket);
  // Ends everything if the group has unfinished transfers. A collective that fails midway calls it,
  // so that its caller's memory is no longer accessed.
  void AbandonUnfinished(GroupId group);
  // Ends everything and sends `cause` to all peers. Only the first call has an effect. Thread-safe.
  void End(std::string_view cause);

  // Returns the payload and header bytes written and read so far.
  BytesBetweenHosts bytes() const;

 private:
  void MoveFrames();
  // Lists the descriptors to poll: entries [i] of both lists belong together; the first is wake_'s.
  // Returns whether poll may block: it must not if there are bytes that poll does not report.
  bool ListWatched(std::vector<pollfd>* watched, std::vector<PeerLink*>* owners);
  void HandleReady(const std::vector<pollfd>& watched, const std::vector<PeerLink*>& owners);
  void PassOnEnd(std::unique_lock<std::mutex>* lock);
  void SendFarewells(std::unique_lock<std::mutex>* lock);
  void Wake();
  PeerLink& LinkTo(int peer);
  bool IsDone(const Ticket& ticket);
  // Records the first failure. It ends everything: posted memory is not accessed any more.
  void FailWith(const Status& status);
  Status FailForPeer(int peer, const std::string& what, Absence::Kind absence);
  void NotifyPeers();

  const std::chrono::milliseconds timeout_;
  const std::chrono::seconds silence_;
  mutable std::mutex mutex_;  // guards all members below except wake_
  std::condition_variable changed_;
  std::vector<std::optional<PeerLink>> links_;
  Status failure_;             // the first failure
  bool has_notified_ = false;  // the peers have been sent the cause of the end
  std::string end_cause_;      // the cause received from a peer; "" if none
  EndListener end_listener_;   // null before it is set and after its call
  AbsenceListener absence_listener_;
  bool ending_ = false;
  UniqueFd wake_;        // readable: there are new events to wait for
  std::jthread thread_;  // last, because it uses the other members
};

}  // namespace ds::comm
