#pragma once

// FrontInput is rank 0's standard input in the agent: the first front reads it and sends it in
// pieces (proto/agent.proto). When that front goes, the input ends.
//
// OnPiece and EndInput are thread-safe; the others are called on one thread.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "cli/job/rank_input.h"
#include "proto/agent.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class FrontInput : public RankInput {
 public:
  // `send` sends a message to the first front.
  explicit FrontInput(std::function<void(const v1::FromAgent&)> send) : reply_(std::move(send)) {}
  ~FrontInput() override { Stop(); }

  Status Start(Send send) override;
  void Begin() override;
  void Stop() override;

  void OnPiece(const v1::InputChunk& chunk);
  // The front has gone.
  void EndInput();

 private:
  void Loop(const Send& send);

  const std::function<void(const v1::FromAgent&)> reply_;
  std::mutex mutex_;  // guards all members below but thread_
  std::condition_variable changed_;
  std::deque<InputPiece> pieces_;
  std::uint64_t serial_ = 0;  // of the current generation's input
  std::uint64_t offset_ = 0;  // after the last accepted byte
  bool begun_ = false;
  bool stopping_ = false;
  bool gone_ = false;  // the front
  std::thread thread_;
};

}  // namespace ds::cli
