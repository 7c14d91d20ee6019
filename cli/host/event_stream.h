#pragma once

// EventStream delivers the events of one generation from a host's daemon, over any number of
// connections. It has no thread of its own.
//
// A stream on this machine ends with its connection. A stream over the network reconnects and
// continues after the last processed event, until the daemon's port refuses connections.
//
// The callbacks run on threads of gRPC, one at a time. Cancel is thread-safe.

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
  std::uint64_t after_sequence = 0;  // the last processed event
  bool again = false;  // as in WatchRequest, for a generation that another controller has started
};

class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  struct Way {
    v1::Daemon::Stub* stub;  // must outlive the stream
    bool over_network;
    std::atomic<std::chrono::nanoseconds>* last_event;  // receives the time of each batch
  };
  // Starts the stream, which exists until callbacks.on_end has returned.
  static std::shared_ptr<EventStream> Begin(const Way& way, const WatchOptions& options,
                                            HostDaemon::WatchCallbacks callbacks);
  EventStream(const Way& way, const WatchOptions& options, HostDaemon::WatchCallbacks callbacks);
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // Ends the stream soon, with kCancelled. At most the batch in progress is still delivered.
  void Cancel();

 private:
  class Connection;

  void Connect();
  // Acknowledges a processed batch; the connection continues to read.
  void Take(const v1::EventBatch& batch);
  // Drops the reference to a connection that is about to end, so that it is not cancelled any more.
  void Forget();
  void OnDisconnected(const Status& status);
  void End(const Status& status);

  const Way way_;
  const WatchOptions options_;
  const HostDaemon::WatchCallbacks callbacks_;
  std::mutex mutex_;               // guards all members below
  std::uint64_t sequence_;         // of the last processed event
  bool generation_ended_ = false;  // the last processed event was GenerationEnded
  bool cancelled_ = false;
  grpc::ClientContext* context_ = nullptr;  // of the connection
  std::unique_ptr<grpc::Alarm> alarm_;      // between two connections
  std::chrono::milliseconds pause_;         // before the next connection
  std::uint64_t connected_at_ = 0;          // sequence_ at the start of the last connection
  std::string broken_by_;                   // error of the previous connection; "" = none
};

}  // namespace ds::cli
