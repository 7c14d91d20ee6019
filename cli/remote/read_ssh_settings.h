#pragma once

// ReadSshSettings reads the user's and the system's ssh_config for one host. It asks OpenSSH's
// client (`ssh -G`) if a line that applies to the host needs it (ssh_config.h), and fails if such a
// line cannot be honoured because there is no client. dsrun does not ask for every host: `ssh -G`
// takes half as much CPU time as the rest of a start.
//
// Files may hang, and so may commands of Match exec. The latter end at the attempt's deadline, or
// when the user gives up. Thread-safe.

#include <string>

#include "cli/remote/host_attempt.h"
#include "cli/remote/host_failure.h"
#include "cli/remote/remote_target.h"
#include "cli/remote/ssh_settings.h"

namespace ds::cli {

HostResult<SshSettings> ReadSshSettings(const RemoteTarget& target, HostAttempt* attempt);

// Returns the name of the user who runs dsrun; "" if it is unknown.
std::string FindLocalUser();

}  // namespace ds::cli
