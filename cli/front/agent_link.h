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
  // Also replaces a connection that has ended. Messages that were not received over it are lost,
  // except standard input.
  void Open(UniqueFd connection);
  // Sends without blocking for long: an agent that does not read gets nothing more after what the
  // socket holds.
  void Send(const v1::FromFront& message);
  // Sends the first message of a front, with the protocol of this program.
  void SendHello(v1::FrontHello hello = {});
  void SendSignal(int signal);
  // Blocks until the next message. nullopt: the connection has ended, or nothing came in time.
  std::optional<v1::FromAgent> Receive();
  // Ends the connection; Receive returns.
  void Close();
  // Limits each wait of Receive; 0 = no limit.
  void SetReceiveTimeout(std::chrono::seconds timeout);
  bool timed_out() const { return timed_out_; }

  // Begins the input of this serial. Returns false if another agent goes on with the input that
  // already runs: a piece without a reply is sent again.
  bool BeginInput(std::uint64_t serial);
  // Sends a piece of standard input and blocks until its reply (RankInput::Send). kUnavailable: the
  // input has ended.
  StatusOr<std::uint64_t> SendInput(const InputPiece& piece);
  void OnInputReply(const v1::InputReply& reply);
  void EndInput();

 private:
  UniqueFd connection_;
  FrameReader received_;
  bool timed_out_ = false;
  std::mutex send_mutex_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  bool input_runs_ = false;
  std::uint64_t serial_ = 0;  // of the input
  std::optional<InputPiece> unanswered_;
  std::optional<v1::InputReply> reply_;
};

}  // namespace ds::cli
