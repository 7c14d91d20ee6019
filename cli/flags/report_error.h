#pragma once

#include "runtime/base/status.h"

namespace ds::cli {

// Prints "dsrun: message" on stderr, each further line of the message likewise, escaped as
// Printable does, and returns `exit_status`.
int ReportError(const Status& error, int exit_status);

}  // namespace ds::cli
