#pragma once

// StartRemoteDaemon: from a hostfile entry to a listening dsrund, in one SSH connection that is
// closed again, unless the daemon can be reached through it only:
//
//     connect -> host key -> log in -> facts -> place dsrund -> start it -> reach its port
//
// The daemon's keys go through the connection's standard input. Its life is then decided by its
// lease.
//
// Threads: safe to call concurrently with the same RemoteJob.

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "cli/flags/launch_flags.h"
#include "cli/remote/daemon_binary.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/host_keys.h"
#include "cli/remote/interrupter.h"
#include "cli/remote/remote_connection.h"
#include "cli/remote/remote_shell.h"
#include "cli/remote/remote_target.h"
#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// Settings that all hosts of a job share; everything pointed to outlives the call.
struct RemoteJob {
  std::string job_id;
  std::chrono::milliseconds timeout{20'000};  // to reach a host, and for dsrund to start
  std::chrono::milliseconds lease{30'000};
  // Read while the first hosts are being reached.
  std::shared_future<StatusOr<DaemonBinary>> binary;
  SshTransport transport = SshTransport::kLibssh;
  HostKeys* host_keys = nullptr;  // of kLibssh
  Interrupter* interrupter = nullptr;
};

struct StartedDaemon {
  std::string address;  // numeric
  int port = 0;
  int pid = 0;
  std::string version;
  std::string notice;                    // for the user; "" when there is nothing to say
  std::unique_ptr<RemoteTunnel> tunnel;  // the way to it; null when its port can be dialled

  // The address as gRPC wants it: "ipv4:10.0.0.2:34567", "ipv6:[fd00::2]:34567", or the tunnel's.
  std::string target() const;
};

// Tries once, and gives up on reaching the host at `deadline`.
HostResult<StartedDaemon> StartRemoteDaemon(const RemoteTarget& target,
                                            const v1::Credentials& credentials,
                                            const RemoteJob& job, Interrupter::Deadline deadline);

// Reads the line of a ListenResponse that dsrund prints. Pure.
HostResult<StartedDaemon> ParseListenResponse(const std::string& printed);

// RemoteFacts: what is asked of a host before anything is put there, in one command.

struct RemoteFacts {
  std::string address;  // the host's own, on which it took our connection
  std::string machine;  // "Linux x86_64"
  std::string dsrank;   // "" when the host has none
  std::string folder;   // where a file of this dsrund's name is already; "" when nowhere
};

// Finds out as well whether the login shell keeps quiet and whether the host can run the binary at
// all.
HostResult<RemoteFacts> AskForFacts(RemoteShell* shell, const DaemonBinary& binary);

// Pure: what the script printed, as facts. Used by AskForFacts.
HostResult<RemoteFacts> ParseFacts(const std::string& printed);

}  // namespace ds::cli
