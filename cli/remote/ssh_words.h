#pragma once

// Parsers for the messages of OpenSSH's own client.
//
// The client exits with 255 for every failure, so only its English messages, which no locale
// translates, distinguish them. Unknown messages are shown unchanged.
//
// Pure.

#include <string>
#include <string_view>

#include "cli/remote/host_failure.h"

namespace ds::cli {

// Returns the value to use for a StrictHostKeyChecking: "no" would accept changed keys, and "ask"
// needs a user to answer.
std::string AllowedStrictness(const std::string& configured);

// Returns the warning in the client's standard error, for the user; "" = none.
std::string WarningOf(const std::string& words);

// `host` is the argument that the user would pass to ssh, `words` the client's standard error.
HostFailure ExplainSsh(const std::string& host, const std::string& words);

// Returns why a name cannot be that of a host: "it has an empty part"; "" = it can.
std::string FindNameFault(std::string_view name);

// Replaces each HOST in `hint` by `host`, so that the commands in it can be pasted. A name that is
// special to a shell, or looks like an option of ssh, is quoted, and the 'marks' around such a
// command are removed.
std::string HintFor(std::string_view hint, const std::string& host);

}  // namespace ds::cli
