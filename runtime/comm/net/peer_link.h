#pragma once

// PeerLink: the frames over the connection to one peer.
//
// A frame is a header, which says what call of which group it belongs to and how long it is, and
// that many bytes. Every group has two queues of receives: what its collectives exchange never
// waits behind its messages. Frames are matched with the receives of their queue in the order of
// both; both ends compare what the frame is for: a disagreement is an error and nothing is
// overwritten.
//
// A message that nobody has asked for is kept. A frame of a collective that this rank has not begun
// stays in the socket, unless it stands in the way of one that this rank waits for, or of the end
// of a peer that has hung up: then it is kept, too. What is kept takes no more memory than has
// come, whatever the header says.
//
// Threads: not safe; PeerLinks guards it. Lifetimes: posted memory stays valid, and what is sent
// unchanged, until it is done or GiveUp was called.

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
#include "runtime/comm/net/frame_header.h"
#include "runtime/comm/net/peer_rails.h"

namespace ds::comm {

class PeerLink {
 public:
  PeerLink(PeerRails rails, std::string name) : rails_(std::move(rails)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // Says why nothing comes or goes any more; "" while it does.
  const std::string& ended() const { return ended_; }
  // Says why the peer has ended everything; "" unless it has told.
  const std::string& end_cause() const { return end_cause_; }
  // The peer has told that it waits, too, and nothing since.
  bool waits() const { return waits_; }
  // It is lost because nothing gets through to its host.
  bool is_unreachable() const { return is_unreachable_; }
  // Ends the link when its host has not answered for so long (peer_silence.h).
  void EndIfSilent(std::chrono::seconds silence);
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  std::uint64_t bytes_received() const { return bytes_received_; }

  // Return the number that the frame has among those sent, or received in its queue.
  StatusOr<std::uint64_t> Send(const FrameHeader& header, std::span<const std::byte> bytes);
  StatusOr<std::uint64_t> Receive(const FrameHeader& header, std::span<std::byte> bytes);
  bool IsSent(std::uint64_t number) const { return sends_done_ >= number; }
  bool IsReceived(const FrameHeader& header, std::uint64_t number);
  // Something was posted for the group that is not done.
  bool HasUnfinished(GroupId group) const;

  // Says what poll shall wait for; 0: nothing.
  short events() const;
  // The rail that is read from and the one that is written to: poll waits for them apart when they
  // differ.
  int read_fd() const { return rails_.read_fd(); }
  int write_fd() const { return rails_.write_fd(); }
  // There are bytes to be read that poll does not know of.
  bool HoldsUnread() const { return IsInFrame() && rails_.HoldsUnread(); }
  Status Write();
  Status Read();
  // The peer has hung up: reads what it has said before.
  Status ReadToTheEnd();

  Status TellThatItWaits();
  // Gives up what was posted, whose memory is not touched any more. Nothing may be posted later.
  void GiveUp();
  // Gives up, and tells the peer why.
  void SayWhyItEnds(std::string_view cause);
  bool HasToWrite() const { return !outgoing_.empty() && ended_.empty(); }

 private:
  struct Outgoing {
    FrameHeader header;
    std::span<const std::byte> rest;   // of its bytes that are not written yet
    std::size_t of_header = 0;         // written
    bool has_begun = false;            // the stream may hold some of it that are not written yet
    std::vector<std::byte> copy = {};  // holds `rest`, where that is not its caller's
  };
  struct Posted {
    FrameHeader header;
    std::span<std::byte> bytes;
  };
  struct Kept {
    FrameHeader header;
    std::vector<std::byte> bytes;
  };
  struct Queue {
    std::deque<Posted> posted;
    std::deque<Kept> kept;    // the last one may be incomplete
    std::uint64_t asked = 0;  // what was posted so far
    std::uint64_t done = 0;   // and of that, what is finished
  };
  using QueueKey = std::tuple<GroupId, FrameChannel>;

  static QueueKey KeyOf(const FrameHeader& header) { return {header.group, header.channel}; }
  // `error`: the connection's; 0: the peer has closed it. `where`: the rail, for the message.
  void End(int error, const std::string& where);
  // A frame without a place is left where it is until this rank asks for it.
  bool IsInFrame() const { return header_read_ < sizeof(FrameHeader) || has_place_; }
  bool IsAnythingAwaited() const;
  Status ReadFrame(bool* more);
  Status FindPlace();
  // Makes room for more of the frame that is kept.
  Status GrowKept(std::vector<std::byte>* bytes);
  Status FinishFrame();
  Status TakeKept(const FrameHeader& header, Queue* queue);
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
  FrameHeader header_;  // of the frame that is coming in
  std::size_t header_read_ = 0;
  std::span<std::byte> rest_;  // what there is room for of its bytes that are still to come
  bool keeping_ = false;       // they go to the last of the queue's kept
  bool has_place_ = false;     // for the frame
  bool has_given_up_ = false;  // what was posted
  bool has_hung_up_ = false;   // the peer
  bool waits_ = false;         // the peer
  bool is_unreachable_ = false;
};

}  // namespace ds::comm
