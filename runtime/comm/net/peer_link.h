#pragma once

// PeerLink: sends and receives frames over the connection to one peer.
//
// A frame is a header, which identifies the call, its group and the length, followed by that number
// of bytes. Every group has two receive queues, so its collectives never wait for its messages. The
// frames of a queue are matched with its receives in order. Both ends compare the calls; a mismatch
// is an error and nothing is overwritten.
//
// A message without a posted receive is kept in memory. A frame of a collective that this rank has
// not begun stays in the socket. It is kept in memory too if it blocks an awaited frame, or if the
// peer has hung up and the frame comes before its end. Buffered frames take memory only for bytes
// that have arrived, independent of the length in the header.
//
// Not thread-safe; PeerLinks guards it. Posted memory must stay valid, and data to be sent must
// stay unchanged, until the transfer is done or GiveUp was called.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/net/peer_rails.h"
#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

enum class FrameChannel : std::uint32_t {
  kCollective = 0,
  kMessage = 1,
  kEnd = 2,    // the bytes hold the reason why the sender has ended everything; no frame follows
  kWaits = 3,  // no bytes: the sender has waited for a rank for long, and still waits
};

// Identifies a group among those that share the same connections (world_group.h).
using GroupId = std::uint64_t;

// Precedes a frame's bytes on the wire. Plain data, sent as it is in memory.
struct FrameHeader {
  std::uint64_t bytes = 0;
  GroupId group = 0;
  FrameChannel channel = FrameChannel::kCollective;
  CallSignature call = {};
};

class PeerLink {
 public:
  PeerLink(PeerRails rails, std::string name) : rails_(std::move(rails)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // Returns why the link has ended; "" while it works.
  const std::string& ended() const { return ended_; }
  // Returns the peer's reason for ending everything; "" unless it has sent one.
  const std::string& end_cause() const { return end_cause_; }
  // Returns whether the last frame from the peer reported that the peer is waiting too.
  bool waits() const { return waits_; }
  // Returns whether the link was lost because nothing gets through to the peer's host.
  bool is_unreachable() const { return is_unreachable_; }
  // Ends the link if the peer's host has not answered for `silence` (peer_silence.h).
  void EndIfSilent(std::chrono::seconds silence);
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

  // Post a frame. Both return the frame's number among the frames sent, or received in its queue.
  StatusOr<std::uint64_t> Send(const FrameHeader& header, std::span<const std::byte> bytes);
  StatusOr<std::uint64_t> Receive(const FrameHeader& header, std::span<std::byte> bytes);
  bool IsSent(std::uint64_t number) const { return sends_done_ >= number; }
  bool IsReceived(const FrameHeader& header, std::uint64_t number);
  // Returns whether the group has posted a transfer that is not done.
  bool HasUnfinished(GroupId group) const;

  // Returns the poll events to wait for; 0: none.
  short events() const;
  // Return the rail to read from and the rail to write to. If they differ, poll must wait for them
  // separately.
  int read_fd() const { return rails_.read_fd(); }
  int write_fd() const { return rails_.write_fd(); }
  // Returns whether there are bytes to read that poll does not report.
  bool HoldsUnread() const { return IsInFrame() && rails_.HoldsUnread(); }
  Status Write();
  Status Read();
  // Call when the peer has hung up: reads the data that it sent before.
  Status ReadToTheEnd();

  Status NotifyWaiting();
  // Drops all posted transfers and no longer accesses their memory. Nothing may be posted later.
  void GiveUp();
  // Calls GiveUp, then sends `cause` to the peer.
  void SendEndReason(std::string_view cause);
  bool HasToWrite() const { return !outgoing_.empty() && ended_.empty(); }

 private:
  struct Outgoing {
    FrameHeader header;
    std::span<const std::byte> rest;   // bytes not written yet
    std::size_t of_header = 0;         // bytes of the header written
    bool has_begun = false;            // the stream may hold unwritten bytes of this frame
    std::vector<std::byte> copy = {};  // owns the bytes of `rest`, if the caller does not
  };
  struct Posted {
    FrameHeader header;
    std::span<std::byte> bytes;
  };
  struct BufferedFrame {
    FrameHeader header;
    std::vector<std::byte> bytes;
  };
  struct Queue {
    std::deque<Posted> posted;
    std::deque<BufferedFrame> buffered;  // the last frame may be incomplete
    std::uint64_t asked = 0;             // receives posted so far
    std::uint64_t done = 0;              // receives finished so far
  };
  using QueueKey = std::tuple<GroupId, FrameChannel>;

  static QueueKey KeyOf(const FrameHeader& header) { return {header.group, header.channel}; }
  // `error` is the errno of the connection; 0: the peer has closed it. `where` names the rail in
  // the message.
  void End(int error, const std::string& where);
  // A frame without a destination stays in the socket until this rank posts a receive for it.
  bool IsInFrame() const { return header_read_ < sizeof(FrameHeader) || has_destination_; }
  bool IsAnythingAwaited() const;
  Status ReadFrame(bool* more);
  Status FindDestination();
  // Allocates memory for more bytes of a kept frame.
  Status GrowBuffered(std::vector<std::byte>* bytes);
  Status FinishFrame();
  Status TakeBuffered(const FrameHeader& header, Queue* queue);
  Status CheckMatch(const FrameHeader& mine, const FrameHeader& theirs) const;

  PeerRails rails_;
  std::string name_;
  std::string ended_;
  std::string end_cause_;
  std::deque<Outgoing> outgoing_;
  std::uint64_t sends_asked_ = 0;
  std::uint64_t sends_done_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
  std::map<QueueKey, Queue> queues_;
  FrameHeader header_;  // of the incoming frame
  std::size_t header_read_ = 0;
  std::span<std::byte> rest_;     // destination of the frame's next bytes
  bool keeping_ = false;          // whether they go to the last kept frame of the queue
  bool has_destination_ = false;  // whether the frame has a destination
  bool has_given_up_ = false;     // whether posted transfers were dropped
  bool has_hung_up_ = false;      // the peer has hung up
  bool waits_ = false;            // the peer is waiting
  bool is_unreachable_ = false;
};

}  // namespace ds::comm
