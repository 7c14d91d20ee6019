#include "daemon/inspect/find_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "daemon/inspect/mounts.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// Returns the errno that execve would give for `path`; 0 if it would try to execute it.
int TryExecutable(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno;
  if (S_ISDIR(info.st_mode)) return EISDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

StatusOr<std::string> FindInSearchPath(const std::string& program, std::string_view search_path,
                                       const fs::path& working_directory) {
  int best_error = ENOENT;
  for (std::size_t start = 0; start <= search_path.size();) {
    const std::size_t end = std::min(search_path.find(':', start), search_path.size());
    const std::string folder(search_path.substr(start, end - start));
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    const int error = TryExecutable(working_directory / candidate);
    if (error == 0) return candidate;
    if (error == EACCES) best_error = error;
    start = end + 1;
  }
  if (best_error == EACCES) return ErrnoError(EACCES, "program '" + program + "' in PATH");
  std::string message = "program '" + program + "' is in none of the folders of PATH";
  if (TryExecutable(working_directory / program) == 0) {
    message += "; to run the one in the working directory write './" + program + "'";
  }
  return NotFoundError(message);
}

}  // namespace

StatusOr<std::string> FindProgram(const std::string& program, std::string_view search_path,
                                  const fs::path& working_directory) {
  if (program.find('/') == std::string::npos) {
    return FindInSearchPath(program, search_path, working_directory);
  }
  if (const int error = TryExecutable(working_directory / program); error != 0) {
    return ErrnoError(error, "program '" + program + "' in " + working_directory.string());
  }
  return program;
}

std::optional<std::string> FindEnvironmentValue(const std::vector<std::string>& environment,
                                                std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

std::string DescribeSearch(const std::string& program, const std::string& working_directory) {
  const std::string text = "looking for program ";
  if (program.find('/') == std::string::npos) return text + program + " in PATH";
  return text + WithFileSystem((fs::path(working_directory) / program).string());
}

}  // namespace ds::daemon
