#pragma once

// Credentials: what proves that this daemon is the one of its job and host. They come from the
// controller, as one line of JSON on standard input:
//
//     {"ca_certificate":"PEM","certificate":"PEM","private_key":"PEM","lease_seconds":30}
//
// and live in memory only: never in a file, argv or the environment.
//
// Threads: plain functions and values.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::daemon {

// PEM texts.
struct Credentials {
  std::string ca_certificate;
  std::string certificate;
  std::string private_key;
};

struct ListenRequest {
  Credentials credentials;
  std::chrono::nanoseconds lease{};
};

// kInvalidArgument names the field that is wrong; no message holds a value.
StatusOr<ListenRequest> ParseListenRequest(std::string_view line);

// A duration of a lease. kInvalidArgument when it is not a number of seconds from 0.05 to a day.
StatusOr<std::chrono::nanoseconds> LeaseFromSeconds(double seconds);

// Checks that TLS will accept them: readable, the key fits the certificate, the certificate is the
// authority's, meant for a server, and `unix_seconds` (this host's clock) lies within its dates.
// Said here in words, because to the other end a failed handshake looks like any broken connection.
Status CheckCredentials(const Credentials& credentials, std::int64_t unix_seconds);

}  // namespace ds::daemon
