#pragma once

// TcpRelay: stands between clients and a server of this machine and does to their connections what
// a network does: makes them slow, thin or deaf on one side, and breaks them. It needs nothing of
// the kernel, no namespaces and no netem. It remembers what clients sent.
//
// What a network loses on the way TCP sends again: a program sees bytes that come late, bytes that
// do not come any more, or a connection that breaks. These are what the relay can do.
//
// Threads: one of its own; all members from any thread.

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/base/unique_fd.h"

namespace ds::testing {

class TcpRelay {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Direction { kToServer, kToClient };

  // Listens on a free port of 127.0.0.1 and connects each client to `server_port` of `server`, an
  // IPv4 address.
  explicit TcpRelay(int server_port, const std::string& server = "127.0.0.1");
  ~TcpRelay();
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  std::string target() const { return "ipv4:127.0.0.1:" + std::to_string(port_); }

  // Makes what is sent from now on arrive so much later.
  void Delay(std::chrono::milliseconds delay);
  // Each connection carries at most so much each way from now on.
  void LimitBandwidth(std::uint64_t bytes_per_second);
  // Resets every connection; new ones are made as before.
  void Cut();
  // The same, and who comes from now on is refused, as by a gateway that knows no way any more.
  void Refuse();
  // From now on nothing passes, in this direction or in both, until Release. Connections stay up.
  void Hold(Direction way);
  void Hold();
  void Release();

  // The bytes that clients sent so far, all connections together.
  std::string Recorded();

 private:
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };
  // One direction of a connection.
  struct Stream {
    std::deque<Piece> pieces;
    std::size_t held_bytes = 0;  // in `pieces`
    bool ended = false;          // nothing more comes
    bool passed_on_end = false;
  };
  struct Connection {
    UniqueFd client, server;
    Stream to_server, to_client;
  };

  void Run();
  // Waits until there may be something to do.
  void Await();
  void AcceptClients();
  // False when the connection is over.
  bool Advance(Connection& connection);
  bool Take(int from, Stream& stream, Direction way);
  bool Give(int to, Stream& stream, Direction way);
  bool IsHeld(Direction way) const { return held_[static_cast<int>(way)]; }
  short Wanted(const Stream& incoming, Direction in, const Stream& outgoing, Direction out,
               Clock::time_point now) const;
  void Wake();

  const std::string server_;
  const int server_port_;
  int port_ = 0;
  UniqueFd listener_, wake_;
  std::mutex mutex_;  // guards all below
  std::list<Connection> connections_;
  std::string recorded_;
  std::chrono::milliseconds delay_{0};
  std::uint64_t bytes_per_second_ = 0;  // 0 = as many as there are
  bool held_[2] = {false, false};       // by Direction
  bool refuses_ = false;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace ds::testing
