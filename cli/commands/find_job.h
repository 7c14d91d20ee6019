#pragma once

// FindJob finds the run folder that a user names on the command line of `dsrun status`, `logs`,
// `attach`, `detach`, `stop` or `events`.

#include <filesystem>
#include <string>

#include "runtime/base/status.h"

namespace ds::cli {

// `word` is a run folder, a folder name below runs/, or the id of a job that runs on this machine;
// "" is the only job that runs on this machine. kNotFound: there is no such job; kInvalidArgument:
// several run, and the message lists them. `command` is for messages.
StatusOr<std::filesystem::path> FindJob(const std::string& word, const std::string& command);

}  // namespace ds::cli
