#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// Prints "dsrun: message" on stderr, each further line of the message likewise, escaped as
// Printable does, and returns `exit_status`.
int ReportError(const Status& error, int exit_status);

// Prints "dsrun: text" on stderr for each notice, likewise.
void ReportNotices(const std::vector<std::string>& notices);

}  // namespace ds::cli
