#pragma once

// JobObserver: who wants to know what a job does: the run directory, the console.
//
// Threads: every call comes from the controller's thread, in the order in which things were seen;
// none waits for a file system or a console.

#include <memory>
#include <string>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// An event and where it comes from.
struct HostEvent {
  const std::string& host;  // as spelt in the hostfile
  int generation;
  const v1::Event& event;
  std::shared_ptr<const void> batch = nullptr;  // keeps the event; null: it stays for the call only
};

class JobObserver {
 public:
  virtual ~JobObserver() = default;
  // A host is ready; its findings are warnings at most.
  virtual void OnPrepared(const std::string& host, const v1::PrepareResponse& response) = 0;
  // Returns what has become of this event or, later, of earlier ones. An error ends the job: what
  // the user was promised cannot be kept (a full disk under the logs).
  virtual Status OnEvent(const HostEvent& event) = 0;
  virtual void OnNotice(const std::string& text) = 0;
};

}  // namespace ds::cli
