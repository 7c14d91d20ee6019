#pragma once

// HostFailure is the reason why a host could not be made ready for a job, in kinds that need
// different remedies.
//
// Pure; plain values.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/base/status.h"

namespace ds::cli {

enum class FailureKind {
  kName,            // the name does not resolve
  kRefused,         // no process listens on the port
  kTimeout,         // no response in time
  kUnreachable,     // no route, network down
  kHandshake,       // the peer closed the connection, or is not an SSH server
  kHostKey,         // the server's key differs from the known one
  kAuthentication,  // the server accepts none of our keys
  kShellNoise,      // the login shell prints text instead of running commands
  kPlacing,         // dsrund could not be copied: no space, home not writable
  kStart,           // dsrund did not start
  kSsh,             // ssh itself did not start: its configuration or its arguments
  kPort,            // dsrund listens but cannot be reached
  kInterrupted,     // the user cancelled
};

struct HostFailure {
  FailureKind kind = FailureKind::kStart;
  std::string message;     // the problem and its location
  std::string hint;        // the remedy
  bool transient = false;  // another try may succeed
  bool hung = false;       // a call that no deadline ends did not return
};

using HostOutcome = Outcome<HostFailure>;
template <typename T>
using HostResult = Result<T, HostFailure>;

// Returns the failure of a start that the user has cancelled.
HostFailure InterruptedFailure();

// Returns the failure of a start for which this machine is at fault.
HostFailure LocalFailure(const Status& status);

// Returns the failure's name in the table: "name", "refused", "host key", ...
std::string_view FailureName(FailureKind kind);

struct FailedHost {
  std::string host;  // as spelt in the hostfile
  HostFailure failure;
};

// Makes one block of text for the user: a headline, then host, kind, message and hint of each
// failure.
std::vector<std::string> MakeFailureTable(const std::vector<FailedHost>& failed, int host_count);

}  // namespace ds::cli
