#pragma once

// Converts a Verdict to its message and back, byte for byte: names of hosts and files need not be
// UTF-8. The evidence stays in verdict.json.
//
// Pure.

#include "cli/job/verdict/verdict.h"
#include "proto/agent.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

v1::JobVerdict MakeVerdictMessage(const Verdict& verdict);
Verdict ReadVerdictMessage(const v1::JobVerdict& message);

}  // namespace ds::cli
