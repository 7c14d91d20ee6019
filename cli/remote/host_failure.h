#pragma once

// HostFailure: why a host could not be made ready for a job, told apart so that the user can act.
//
// Pure; plain values.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace ds::cli {

enum class FailureKind {
  kName,            // the name does not resolve
  kRefused,         // nobody listens on the port
  kTimeout,         // no answer in time
  kUnreachable,     // no route, network down
  kHandshake,       // something answered and hung up, or it is no SSH server
  kHostKey,         // the server's key is not the one that is known
  kAuthentication,  // the server lets none of our keys in
  kShellNoise,      // the login shell prints into what programs read
  kPlacing,         // dsrund could not be put there: no space, unwritable home
  kStart,           // dsrund did not start
  kSsh,             // ssh itself could not begin: its settings, or what it was given
  kPort,            // dsrund listens but cannot be reached
  kInterrupted,     // the user gave up
};

struct HostFailure {
  FailureKind kind = FailureKind::kStart;
  std::string message;     // what happened, where
  std::string hint;        // what to do
  bool transient = false;  // another try may do better
};

using HostOutcome = Outcome<HostFailure>;
template <typename T>
using HostResult = Result<T, HostFailure>;

// The failure's name in the table: "name", "refused", "host key", ...
std::string_view FailureName(FailureKind kind);

struct FailedHost {
  std::string host;  // as spelt in the hostfile
  HostFailure failure;
};

// Makes one block for the user: a headline, then host, kind, message and hint of each.
std::vector<std::string> MakeFailureTable(const std::vector<FailedHost>& failed, int host_count);

}  // namespace ds::cli
