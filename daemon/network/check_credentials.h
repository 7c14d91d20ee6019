#pragma once

// CheckCredentials says whether the credentials that the controller gave this daemon will do. They
// live in memory only: never in a file, argv or the environment.
//
// Pure.

#include <cstdint>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

// Refuses what TLS would not accept: they must be readable, the key fit the certificate, the
// certificate be the authority's and meant for a server, and `unix_seconds` (this host's clock) lie
// within its dates. It is said here in words, because to the other end a failed handshake looks
// like any broken connection; no message holds a value.
Status CheckCredentials(const v1::Credentials& credentials, std::int64_t unix_seconds);

}  // namespace ds::daemon
