#pragma once

// BoundFacts limits what one host can put into a report: a program that answers a question about
// the host may print megabytes, and files of a container may hold anything.
//
// Pure; thread-safe. Calling it twice changes nothing more.

#include <cstddef>
#include <string>
#include <string_view>

#include "proto/host_facts.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

// A version, a name or a model; a text for the user. In bytes.
inline constexpr std::size_t kLongestFact = 200;
inline constexpr std::size_t kLongestFactText = 1000;

// Returns `text` with control characters and invalid bytes as escapes ("\n", "\x1b"), and with
// "..." at its end if it is longer than `most` bytes.
std::string BoundFact(std::string_view text, std::size_t most = kLongestFact);

// Limits all texts, except paths, which programs use and the kernel limits.
void BoundFacts(v1::Python* python);
void BoundFacts(v1::DsrankFacts* dsrank);
void BoundFacts(v1::HostFacts* facts);

}  // namespace ds::daemon
