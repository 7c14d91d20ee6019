#pragma once

// CheckCredentials validates the credentials that the controller gave this daemon. Credentials are
// kept in memory only: never in a file, argv or the environment.
//
// Pure.

#include <cstdint>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

// Rejects credentials that TLS would not accept. They must be readable; the key must match the
// certificate; the authority must have issued the certificate for a server; `unix_seconds` (this
// host's clock) must be within its dates. The error explains the reason, because a failed handshake
// looks like any broken connection to the other end. Messages never contain values.
Status CheckCredentials(const v1::Credentials& credentials, std::int64_t unix_seconds);

}  // namespace ds::daemon
