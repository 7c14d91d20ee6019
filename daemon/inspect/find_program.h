#pragma once

// FindProgram finds a program on this host in the same way as execvp, without starting it.
//
// Reads the file system, which may not answer. Thread-safe.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::daemon {

// The folders searched for programs if PATH is not set.
inline constexpr std::string_view kDefaultSearchPath = "/usr/local/bin:/usr/bin:/bin";

// Returns what a search for a program does, for messages.
std::string DescribeSearch(const std::string& program, const std::string& working_directory);

// Finds `program`: itself if it contains a slash, else the first executable of that name in
// `search_path` (colon-separated; empty entries mean the working directory). The result is relative
// to `working_directory`. Returns kNotFound with a suggestion, or kPermissionDenied if the file
// exists and may not be executed.
StatusOr<std::string> FindProgram(const std::string& program, std::string_view search_path,
                                  const std::filesystem::path& working_directory);

// Returns the value of a variable among entries "NAME=value"; nullopt if it is not there.
std::optional<std::string> FindEnvironmentValue(const std::vector<std::string>& environment,
                                                std::string_view name);

}  // namespace ds::daemon
