#pragma once

// PeerRails: the byte stream between two ranks over one or several connections in parallel, each on
// its own network ("rails", the usual term for the network interfaces of a host).
//
// The stream is split into stripes of equal length, and stripe k goes over rail k modulo the number
// of rails. Both ends can compute the rail of each byte, so no header is needed. The socket of a
// rail holds many stripes, so all rails are busy during a long message. Rails are assumed to be
// equally fast: the speed is the number of rails times the slowest rail.
//
// The loss of a rail ends the peer, because its part of the stream is missing.
//
// Not thread-safe; PeerLinks guards it (peer_links.h).

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
    std::string name;  // name of the network in messages: "eth1"; used with several rails
  };
  static constexpr std::size_t kStripe = std::size_t{64} << 10;

  PeerRails() = default;  // without rails
  // One rail, which needs no name.
  PeerRails(std::unique_ptr<PeerStream> stream);  // NOLINT: most peers have one rail
  explicit PeerRails(std::vector<Rail> rails) : rails_(std::move(rails)) {}

  bool empty() const { return rails_.empty(); }
  const std::vector<Rail>& all() const { return rails_; }

  // Return the sockets of the next byte to read and to write.
  int read_fd() const { return reading().stream->fd(); }
  int write_fd() const { return writing().stream->fd(); }
  // Like PeerStream's Write and Read, on the rail of the next byte. An error belongs to that rail.
  ssize_t Write(std::span<const std::byte> head, std::span<const std::byte> body);
  ssize_t Read(std::span<std::byte> to);
  bool HoldsUnread() const { return reading().stream->HoldsUnread(); }
  // Shuts down writing: the peer sees the end of the stream.
  void EndWriting();

  // Makes the kernel end idle rails if the peer's host is silent (peer_silence.h).
  void EndWhenSilent(std::chrono::seconds silence);
  // Returns the first rail on which the peer's host has been silent for `silence`; null: none.
  const Rail* FindSilent(std::chrono::seconds silence) const;

  // Return the rail's name for messages: " over eth1", or "" if there is only one rail.
  std::string Describe(const Rail& rail) const;
  std::string DescribeReading() const { return Describe(reading()); }
  std::string DescribeWriting() const { return Describe(writing()); }

 private:
  const Rail& At(std::uint64_t position) const {
    return rails_[position / kStripe % rails_.size()];
  }
  const Rail& reading() const { return At(read_); }
  const Rail& writing() const { return At(written_); }
  // Returns the number of bytes up to the end of the stripe.
  std::size_t Left(std::uint64_t position) const;

  std::vector<Rail> rails_;
  std::uint64_t read_ = 0;     // bytes of the incoming stream so far
  std::uint64_t written_ = 0;  // bytes of the outgoing stream so far
};

}  // namespace ds::comm
