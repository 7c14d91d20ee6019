#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::cli {

// Prints "dsrun: message" on stderr and returns `exit_status`. Each further line of the message
// gets the same prefix. Text is escaped as by Printable.
int ReportError(const Status& error, int exit_status);

// Prints "dsrun: text" on stderr for each notice, escaped in the same way.
void ReportNotices(const std::vector<std::string>& notices);

}  // namespace ds::cli
