#include "daemon/job/job_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {
namespace {

Status WriteJobFile(const std::filesystem::path& folder, const v1::JobFile& file) {
  const std::string& name = file.name();
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos) {
    return InvalidArgumentError("job file '" + name + "': not a plain file name");
  }
  const std::string path = (folder / name).string();
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoError(errno, path);
  return WriteAll(fd.get(), file.content(), path);
}

}  // namespace

StatusOr<JobDirectory> JobDirectory::Create(const std::filesystem::path& parent,
                                            const v1::LaunchRequest& request) {
  const auto path = parent / ("generation-" + std::to_string(request.generation()));
  if (::mkdir(path.c_str(), 0700) != 0) return ErrnoError(errno, path.string());
  JobDirectory directory(path);
  for (const v1::JobFile& file : request.files()) {
    DS_RETURN_IF_ERROR(WriteJobFile(path, file));
  }
  return directory;
}

JobDirectory::~JobDirectory() {
  std::error_code ignored;  // a rank may have put something there that cannot be removed
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace ds::daemon
