#pragma once

// A connection to a daemon of this host: a socket pair, one end of which is a client's, while the
// other waits to be handed to the daemon.
//
// Threads: one, which makes and destroys the EarlyConnection and calls MakeLocalConnection.

#include <future>
#include <memory>
#include <optional>

#include "cli/host/daemon_client.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::cli {

struct LocalConnection {
  UniqueFd theirs;
  std::future<std::unique_ptr<DaemonClient>> client;  // whose Watch is opened
};

// Begins to make the connection that MakeLocalConnection will return first, and with it all that
// gRPC begins with: on a thread of its own, while the job is planned and other processors have
// nothing to do. Neither that thread nor gRPC's take signals. One at a time.
class EarlyConnection {
 public:
  EarlyConnection();
  ~EarlyConnection();  // waits for what nobody has taken
  EarlyConnection(const EarlyConnection&) = delete;
  EarlyConnection& operator=(const EarlyConnection&) = delete;

 private:
  friend StatusOr<LocalConnection> MakeLocalConnection();
  std::optional<LocalConnection> connection_;
};

// The early one, if it is there, or one whose client is made when it is asked for.
StatusOr<LocalConnection> MakeLocalConnection();

}  // namespace ds::cli
