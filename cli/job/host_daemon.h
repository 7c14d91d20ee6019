#pragma once

// HostDaemon: what the controller needs of the daemon of one host. The real ones are reached over
// gRPC (local_host.h); tests bring their own.
//
// Threads: Watch is called from one thread while the other calls may come from another.

#include <functional>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class HostDaemon {
 public:
  using EventCallback = std::function<void(const v1::Event&)>;

  virtual ~HostDaemon() = default;
  virtual StatusOr<v1::PrepareResponse> Prepare(const v1::PrepareRequest& request) = 0;
  virtual StatusOr<v1::LaunchResponse> Launch(const v1::LaunchRequest& request) = 0;
  virtual StatusOr<v1::StopResponse> Stop(const v1::StopRequest& request) = 0;
  // Every event of the generation in order; returns OK after JobEnded, else why the stream broke.
  virtual Status Watch(int generation, const EventCallback& on_event) = 0;
};

}  // namespace ds::cli
