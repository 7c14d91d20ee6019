#pragma once

// PeerRails: the bytes between two ranks over one connection or several at the same time, each on a
// network of its own ("rails", as several network interfaces of a host are called).
//
// What is sent is one row of bytes. It is cut into stripes of equal length, and stripe k goes over
// rail k modulo their number: both ends know where the next byte goes and comes from, and nothing
// is added. A rail's socket holds many stripes, so that all rails are busy while a long message is
// on its way. Rails are taken to be alike: a message is as fast as their number times the slowest.
//
// A rail that is lost is the end of the peer: what it carried is missing from the row.
//
// Threads: not safe; PeerLinks guards it (peer_links.h).

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/net/peer_stream.h"

namespace ds::comm {

class PeerRails {
 public:
  struct Rail {
    std::unique_ptr<PeerStream> stream;  // its handshake is done
    std::string name;                    // of the network, for messages: "eth1"; used with several
  };
  static constexpr std::size_t kStripe = std::size_t{64} << 10;

  PeerRails() = default;  // leads nowhere
  // One rail, which needs no name.
  PeerRails(std::unique_ptr<PeerStream> stream);  // NOLINT: what a rank has of most peers
  explicit PeerRails(std::vector<Rail> rails) : rails_(std::move(rails)) {}

  bool empty() const { return rails_.empty(); }
  const std::vector<Rail>& all() const { return rails_; }

  // The sockets on which the next bytes come and go.
  int read_fd() const { return reading().stream->fd(); }
  int write_fd() const { return writing().stream->fd(); }
  // Do what PeerStream's do. An error is that of the rail whose turn it is.
  ssize_t Write(std::span<const std::byte> head, std::span<const std::byte> body);
  ssize_t Read(std::span<std::byte> to);
  bool HoldsUnread() const { return reading().stream->HoldsUnread(); }
  // Tells the peer that nothing more is sent.
  void EndWriting();

  // Ends idle rails on which the other end's host is silent (peer_silence.h).
  void EndWhenSilent(std::chrono::seconds silence);
  // The first rail on which it has been silent for so long; null: none.
  const Rail* FindSilent(std::chrono::seconds silence) const;

  // Say for a message which rail it is about: " over eth1", or "" where there is only one.
  std::string Describe(const Rail& rail) const;
  std::string DescribeReading() const { return Describe(reading()); }
  std::string DescribeWriting() const { return Describe(writing()); }

 private:
  const Rail& At(std::uint64_t position) const {
    return rails_[position / kStripe % rails_.size()];
  }
  const Rail& reading() const { return At(read_); }
  const Rail& writing() const { return At(written_); }
  // The bytes up to the end of the stripe.
  std::size_t Left(std::uint64_t position) const;

  std::vector<Rail> rails_;
  std::uint64_t read_ = 0;     // so far, of the row that comes
  std::uint64_t written_ = 0;  // and of the one that goes
};

}  // namespace ds::comm
