#pragma once

// FrontServer is the agent's end of the connections to its fronts (proto/agent.proto): the first
// front, which has started the job, and those that connect to the socket in the run folder.
//
// One thread serves all connections. Nothing that a front does blocks the agent: a front that does
// not read gets a queue of 64 MiB; output beyond it is dropped, counted and reported to that front
// when it reads again. Only a lossless front slows the job down, and only while it reads.
//
// Thread-safe, except Start and Close. The handlers run on the server's thread and must not block.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/agent/agent_address.h"
#include "cli/agent/frames.h"
#include "proto/agent.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class FrontServer {
 public:
  struct Handlers {
    std::function<void(int signal)> on_signal;
    std::function<void(const v1::InputChunk& chunk)> on_input;
    // The first front has gone: it sends no input any more, and unless the job is detached or has
    // ended, nobody is responsible for the job.
    std::function<void(bool ends_job)> on_first_gone;
    std::function<void()> on_detached;
    std::function<std::string()> describe;  // StatusReply::json
  };

  FrontServer(v1::AgentHello hello, Handlers handlers);
  ~FrontServer();
  FrontServer(const FrontServer&) = delete;
  FrontServer& operator=(const FrontServer&) = delete;

  // Serves the first front, and others at `socket`, unless it is empty. Throws std::system_error if
  // the machine has no thread.
  // `detached`: the job is already.
  Status Start(UniqueFd first, AgentSocket socket, bool detached = false);

  // Sends to all fronts that show the job. A message with output is dropped for a front whose queue
  // is full.
  void Publish(const v1::FromAgent& message);
  void SendToFirst(const v1::FromAgent& message);
  // Sends the outcome to all fronts. The first front may go from now on.
  void PublishEnd(const v1::JobEnded& ended);

  // Waits until every front has received everything or has gone, and ends the server.
  void Close();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Front {
    UniqueFd connection;
    bool first = false;
    bool shows_job = false;
    bool lossless = false;
    bool broken = false;
    FrameReader received = {};
    std::deque<Frame> queue = {};
    std::size_t sent = 0;    // bytes of the first frame in the queue
    std::size_t queued = 0;  // bytes
    std::uint64_t lost_lines = 0;
    std::uint64_t lost_bytes = 0;
    TimePoint progress = {};  // the last time when it read
  };

  void Loop();
  bool Serve(Front* front, short events);  // false: the connection has ended
  void Accept();
  void Handle(Front* front, const v1::FromFront& message);
  void Detach();
  void Forget(std::list<Front>::iterator front);
  // The functions below require mutex_.
  void Queue(Front* front, const Frame& frame);
  void Send(Front* front);
  void ReportDropped(Front* front);
  bool IsSlow(const Front& front, TimePoint now) const;
  bool AllSent() const;
  void Wake() const;

  const Frame hello_;
  const Handlers handlers_;
  AgentSocket socket_;
  UniqueFd wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a front has read, or has gone
  std::list<Front> fronts_;          // guarded by mutex_; only the loop adds and removes
  bool detached_ = false;            // guarded by mutex_
  bool ended_ = false;               // guarded by mutex_
  Frame end_;                        // guarded by mutex_: for fronts that connect after the end
  bool closing_ = false;             // guarded by mutex_
  std::thread thread_;
};

}  // namespace ds::cli
