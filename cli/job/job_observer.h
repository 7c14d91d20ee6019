#pragma once

// JobObserver receives the events of a job, for the run directory and the console.
//
// All calls come from the controller's thread, in the order of the events. Implementations must not
// block on a file system or a console.

#include <memory>
#include <string>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// An event and its origin.
struct HostEvent {
  const std::string& host;  // as spelt in the hostfile
  int generation;
  const v1::Event& event;
  std::shared_ptr<const void> batch =
      nullptr;  // owns the event; null: it is valid during the call only
};

class JobObserver {
 public:
  virtual ~JobObserver() = default;
  // Called when a host is ready; its findings are at most warnings.
  virtual void OnPrepared(const std::string& host, const v1::PrepareResponse& response) = 0;
  // Returns an error of this event or of earlier ones. An error ends the job, because a promise to
  // the user cannot be kept (for example, the disk for the logs is full).
  virtual Status OnEvent(const HostEvent& event) = 0;
  virtual void OnNotice(const std::string& text) = 0;
};

}  // namespace ds::cli
