#pragma once

// Which files a list of data paths stands for.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::data {

// Folders are replaced by the files inside, at any depth, sorted by path; entries whose name begins
// with a dot are left out. Refuses a path that does not exist and a folder without files.
StatusOr<std::vector<std::filesystem::path>> ListDataFiles(const std::vector<std::string>& paths);

// The texts of a .jsonl file, each followed by a newline: every line is a JSON object with a string
// under "text"; empty lines are skipped. Errors name the line.
StatusOr<std::string> ReadJsonlTexts(const std::filesystem::path& path);

}  // namespace ds::data
