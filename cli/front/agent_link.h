#pragma once

// AgentLink is a front's end of the connection to the agent.
//
// Thread-safe, except that one thread calls Receive.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "cli/agent/frames.h"
#include "cli/job/rank_input.h"
#include "proto/agent.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class AgentLink {
 public:
  void Open(UniqueFd connection);
  // Sends without blocking for long: an agent that does not read gets nothing more after what the
  // socket holds.
  void Send(const v1::FromFront& message);
  void SendSignal(int signal);
  // Blocks until the next message. nullopt: the connection has ended, or nothing came in time.
  std::optional<v1::FromAgent> Receive();
  // Ends the connection; Receive returns.
  void Close();
  // Limits each wait of Receive; 0 = no limit.
  void SetReceiveTimeout(std::chrono::seconds timeout);
  bool timed_out() const { return timed_out_; }

  // Sends a piece of standard input and blocks until its reply (RankInput::Send). kUnavailable: the
  // input of this serial has ended.
  StatusOr<std::uint64_t> SendInput(std::uint64_t serial, const InputPiece& piece);
  void OnInputReply(const v1::InputReply& reply);
  // Ends waits for replies about the input of this serial and of earlier ones.
  void EndInput(std::uint64_t serial);

 private:
  UniqueFd connection_;
  FrameReader received_;
  bool timed_out_ = false;
  std::mutex send_mutex_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::uint64_t input_ends_ = 0;  // the last serial that has ended
  std::optional<v1::InputReply> reply_;
};

}  // namespace ds::cli
