#pragma once

// ShowOnConsole shows a message of the agent to the user: an event, a text, or the outcome of the
// job. Messages of other kinds show nothing.
//
// Thread-safe like Console.

#include <string>

#include "cli/console/console.h"
#include "proto/agent.pb.h"

namespace ds::cli {

void ShowOnConsole(const v1::FromAgent& message, const std::string& run_directory,
                   Console* console);

}  // namespace ds::cli
