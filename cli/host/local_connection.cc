#include "cli/host/local_connection.h"

#include <absl/time/time.h>

#include <csignal>
#include <utility>

#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

EarlyConnection* early = nullptr;

void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

std::unique_ptr<DaemonClient> MakeClient(UniqueFd connection) {
  auto client = std::make_unique<DaemonClient>(std::move(connection));
  client->OpenWatch();
  return client;
}

}  // namespace

EarlyConnection::EarlyConnection() {
  StatusOr<SocketPair> pair = MakeSocketPair();
  if (!pair.ok()) return;  // whoever needs one meets the same error
  connection_.emplace();
  connection_->theirs = std::move(pair->theirs);
  connection_->client = std::async(std::launch::async, [ours = std::move(pair->ours)]() mutable {
    BlockSignals();
    std::unique_ptr<DaemonClient> client = MakeClient(std::move(ours));
    // gRPC dates its errors. The first one, which ends a Watch, would else read the time zone while
    // the user waits for the end.
    static_cast<void>(absl::LocalTimeZone());
    return client;
  });
  early = this;
}

EarlyConnection::~EarlyConnection() {
  if (early == this) early = nullptr;
}

StatusOr<LocalConnection> MakeLocalConnection() {
  if (early != nullptr) {
    return *std::exchange(std::exchange(early, nullptr)->connection_, std::nullopt);
  }
  DS_ASSIGN_OR_RETURN(SocketPair pair, MakeSocketPair());
  LocalConnection connection{.theirs = std::move(pair.theirs)};
  connection.client = std::async(std::launch::deferred, [ours = std::move(pair.ours)]() mutable {
    return MakeClient(std::move(ours));
  });
  return connection;
}

}  // namespace ds::cli
