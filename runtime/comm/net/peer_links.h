#pragma once

// PeerLinks: frames between this rank and ranks of other hosts, over one connected stream socket to
// each of them (connect_peers.h makes those).
//
// A frame is a header, which says what call it belongs to and how long it is, and that many bytes.
// Sends and receives are posted, and a thread moves them, whatever this rank does meanwhile: also
// while it waits for others of its host, who may wait for a peer that waits for this rank. Frames
// from one peer are matched with receives in the order of both, on each of two channels: what
// collectives exchange never waits behind messages. A message that nobody has asked for is kept; a
// frame of a collective that this rank has not begun stays in the socket.
//
// Both ends compare what the frame is for: a disagreement is an error and nothing is overwritten.
//
// Lifetimes: posted memory stays valid, and what is sent unchanged, until its Wait has returned.
// Threads: one at a time, besides its own.
// Errors: kUnavailable when a peer that is waited for has ended, does not come in time or is on a
// host that does not answer (peer_silence.h),
// kFailedPrecondition when the ranks disagree; both name the peer. No call may follow.

#include <poll.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/comm/net/peer_stream.h"
#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

enum class FrameChannel : std::uint8_t { kCollective = 0, kMessage = 1 };

// Tells what a frame is and to or from whom it goes.
struct Frame {
  int peer = 0;
  FrameChannel channel = FrameChannel::kCollective;
  CallSignature call = {};
};

class PeerLinks {
 public:
  // No stream for this rank itself and the others of its host; its handshake is done. `name` is
  // what errors call it: "rank 3 (host 10.0.0.2)".
  struct Peer {
    std::unique_ptr<PeerStream> stream;
    std::string name;
  };
  // One thing that was posted.
  struct Ticket {
    int peer = 0;
    int queue = 0;  // kSends, or the channel of a receive
    std::uint64_t number = 0;
  };

  // `peers` by rank. The longest waits: for a peer that does not come, for a host that is silent.
  PeerLinks(std::vector<Peer> peers, std::chrono::milliseconds timeout,
            std::chrono::seconds silence = std::chrono::minutes(1));
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  Ticket Send(const Frame& frame, std::span<const std::byte> bytes);
  Ticket Receive(const Frame& frame, std::span<std::byte> bytes);
  Status Wait(const Ticket& ticket);
  // When something is posted that is not finished, ends everything: of a collective that gives up
  // midway the memory is its caller's again, and is not touched any more.
  void AbandonUnfinished();

  // Payload and headers that were written so far.
  std::uint64_t bytes_sent() const;

 private:
  static constexpr int kSends = 2;

  // Plain data, as it goes over the wire.
  struct Header {
    std::uint64_t bytes = 0;
    std::uint64_t channel = 0;
    CallSignature call = {};
  };
  struct Outgoing {
    Header header;
    std::span<const std::byte> bytes;
    std::size_t written = 0;  // of header and bytes together
  };
  struct Posted {
    Header header;
    std::span<std::byte> bytes;
  };
  struct Kept {
    Header header;
    std::vector<std::byte> bytes;
  };
  struct Link {
    std::unique_ptr<PeerStream> stream;
    std::string name;
    std::string ended;  // why nothing comes or goes any more; "" while it does
    std::deque<Outgoing> outgoing;
    std::array<std::deque<Posted>, 2> posted;  // by channel
    std::deque<Kept> kept;                     // messages; the last one may be incomplete
    std::array<std::uint64_t, 3> asked = {};   // by queue: what was posted so far
    std::array<std::uint64_t, 3> done = {};    // and of that, what is finished
    Header header;                             // of the frame that is coming in
    std::size_t header_read = 0;
    std::span<std::byte> rest;  // of its bytes that are still to come
    bool keeping = false;       // they go to kept.back()
    bool has_place = false;     // the frame's receive was found
  };

  void MoveFrames();
  // Lists what the thread waits for: entry [i] of both belongs together; the first is wake_'s.
  // Returns whether it has to wait: there may be bytes that poll does not know of.
  bool ListWatched(std::vector<pollfd>* watched, std::vector<Link*>* owners);
  void HandleReady(const std::vector<pollfd>& watched, const std::vector<Link*>& owners);
  void Wake();
  static bool IsInFrame(const Link& link);
  Status Write(Link& link);
  Status Read(Link& link);
  Status ReadFrame(Link& link, bool* more);
  Status FindPlace(Link& link);
  void FinishFrame(Link& link);
  Status TakeKept(Link& link);
  Status CheckMatch(const Link& link, const Header& mine, const Header& theirs) const;
  // Ends everything: what was posted is not touched any more.
  Status Fail(Status failure);
  static std::string NameCall(const Link& link, const Ticket& ticket);

  const std::chrono::milliseconds timeout_;
  const std::chrono::seconds silence_;
  mutable std::mutex mutex_;  // guards all below but wake_
  std::condition_variable changed_;
  std::vector<Link> links_;
  std::uint64_t bytes_sent_ = 0;
  Status failure_;
  bool ending_ = false;
  UniqueFd wake_;        // readable: there is something new to wait for
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace ds::comm
