#pragma once

// TcpRelay: stands between a client and a server on this machine and does to their connections what
// a network does: cuts them, or takes bytes and delivers none. It remembers what the client sent.
//
// Threads: one of its own; all members from any thread.

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/base/unique_fd.h"

namespace ds::testing {

class TcpRelay {
 public:
  // Listens on a free port of 127.0.0.1 and connects each client to `server_port` there.
  explicit TcpRelay(int server_port);
  ~TcpRelay();
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  std::string target() const { return "ipv4:127.0.0.1:" + std::to_string(port_); }

  // Resets every connection; new ones are made as before.
  void Cut();
  // From now on nothing passes, in either direction, until Release. Connections stay up.
  void Hold();
  void Release();

  // What clients sent so far, all connections together.
  std::string Recorded();
  // Bytes that servers sent so far.
  std::uint64_t delivered();

 private:
  struct Connection {
    UniqueFd client, server;
  };
  void Run();
  void AcceptClient();
  // False when one side has closed.
  bool Pass(int from, int to, bool from_client);
  void Wake();

  const int server_port_;
  int port_ = 0;
  UniqueFd listener_, wake_;
  std::mutex mutex_;  // guards all below
  std::list<Connection> connections_;
  std::string recorded_;
  std::uint64_t delivered_ = 0;
  bool held_ = false;
  bool quit_ = false;
  std::thread thread_;
};

}  // namespace ds::testing
