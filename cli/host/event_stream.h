#pragma once

// EventStream: the events of one generation from a host's daemon, over as many connections as it
// takes, without a thread of its own.
//
// A stream on this machine ends with its connection. One over the network is made anew, and events
// go on behind the last one that was dealt with, until the daemon's port refuses connections.
//
// Threads: the callbacks run on threads of gRPC's, one at a time; Cancel from any.

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "cli/host/host_daemon.h"
#include "proto/dsrun.grpc.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct WatchOptions {
  std::string job_id;
  std::uint32_t generation = 0;
  std::uint64_t after_sequence = 0;  // the last event already seen
};

class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  struct Way {
    v1::Daemon::Stub* stub;  // outlives the stream
    bool over_network;
    std::atomic<std::chrono::nanoseconds>* last_event;  // gets the time of each batch
  };
  // Begins at once. Lives until callbacks.on_end has returned.
  static std::shared_ptr<EventStream> Begin(const Way& way, const WatchOptions& options,
                                            HostDaemon::WatchCallbacks callbacks);
  EventStream(const Way& way, const WatchOptions& options, HostDaemon::WatchCallbacks callbacks);
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // Its end comes soon, with kCancelled: at most the batch that is being dealt with is the last.
  void Cancel();

 private:
  class Connection;

  void Connect();
  // A batch has been dealt with; the connection reads on.
  void Take(const v1::EventBatch& batch);
  // The connection is about to go: nobody cancels it any more.
  void Forget();
  void OnDisconnected(const Status& status);
  void End(const Status& status);

  const Way way_;
  const WatchOptions options_;
  const HostDaemon::WatchCallbacks callbacks_;
  std::mutex mutex_;               // guards all below
  std::uint64_t sequence_;         // of the last event dealt with
  bool generation_ended_ = false;  // that was GenerationEnded
  bool cancelled_ = false;
  grpc::ClientContext* context_ = nullptr;  // of the connection
  std::unique_ptr<grpc::Alarm> alarm_;      // between two connections
  std::chrono::milliseconds pause_;         // before the next
  std::uint64_t connected_at_ = 0;          // sequence_ when the last was made
  std::string broken_by_;  // what the connection before ended with; "" = it is well
};

}  // namespace ds::cli
