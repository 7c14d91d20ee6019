#pragma once

// StartRemoteDaemon starts a listening dsrund on a host of the hostfile, over one SSH connection.
// The connection is closed afterwards, unless the daemon can only be reached through it:
//
//     connect -> host key -> log in -> facts -> place dsrund -> start it -> reach its port
//
// The daemon receives its keys through the connection's standard input. Afterwards its lease
// determines its lifetime.
//
// Thread-safe, also with the same RemoteJob.

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "cli/flags/launch_flags.h"
#include "cli/remote/daemon_binary.h"
#include "cli/remote/host_attempt.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/host_keys.h"
#include "cli/remote/remote_connection.h"
#include "cli/remote/remote_shell.h"
#include "cli/remote/remote_target.h"
#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// The settings that all hosts of a job share. A call that blocks holds a copy.
struct RemoteJob {
  std::string job_id;
  std::chrono::milliseconds timeout{20'000};  // to reach a host, and for dsrund to start
  std::chrono::milliseconds lease{30'000};
  bool lease_decides = false;  // as in ListenRequest
  // Read while the first hosts are being reached.
  std::shared_future<StatusOr<DaemonBinary>> binary;
  SshTransport transport = SshTransport::kLibssh;
  std::shared_ptr<HostKeys> host_keys;  // for kLibssh
};

struct StartedDaemon {
  std::string address;  // numeric
  int port = 0;
  int pid = 0;
  std::string version;
  std::string notice;                    // for the user; "" = none
  std::unique_ptr<RemoteTunnel> tunnel;  // null if the port can be reached directly

  // Returns the address in gRPC's format: "ipv4:10.0.0.2:34567", "ipv6:[fd00::2]:34567", or the
  // tunnel's.
  std::string target() const;
};

// Tries once. The attempt's deadline limits the time to reach the host; later steps set their own.
HostResult<StartedDaemon> StartRemoteDaemon(const RemoteTarget& target,
                                            const v1::Credentials& credentials,
                                            const RemoteJob& job, HostAttempt* attempt);

// Opens a tunnel to a listening daemon of the host, in place of one that has ended with its
// process. `daemon` is the address and the port that StartRemoteDaemon returned. Tries once. Reads
// of `job` only how to log in.
HostResult<std::unique_ptr<RemoteTunnel>> ReopenTunnel(const RemoteTarget& target,
                                                       const HostPort& daemon, const RemoteJob& job,
                                                       HostAttempt* attempt);

// Parses the line of a ListenResponse that dsrund prints. Pure.
HostResult<StartedDaemon> ParseListenResponse(const std::string& printed);

// RemoteFacts are properties of a host, queried by one command before anything is copied to it.

struct RemoteFacts {
  std::string address;  // the host's address that accepted our connection
  std::string machine;  // "Linux x86_64"
  std::string dsrank;   // "" if the host has none
  std::string folder;   // folder that already has this dsrund; "" = none
};

// Queries the facts. Also checks that the host can run the binary.
HostResult<RemoteFacts> AskForFacts(RemoteShell* shell, const DaemonBinary& binary);

// Parses the output of the script. Pure.
HostResult<RemoteFacts> ParseFacts(const std::string& printed);

}  // namespace ds::cli
