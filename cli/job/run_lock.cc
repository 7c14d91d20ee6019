#include "cli/job/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/host_name.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxBytes = 4096;

std::string ReadBootId() {
  const StatusOr<std::string> text = ReadFile("/proc/sys/kernel/random/boot_id", kMaxBytes);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

Json DescribeThisProcess() {
  return {{"dsrun", DS_VERSION},
          {"host", HostName()},
          {"pid", ::getpid()},
          {"boot_id", ReadBootId()},
          {"since_unix_seconds", Clock::System().UnixNanos() / 1'000'000'000}};
}

std::string FormatTime(std::time_t seconds) {
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text.data();
}

// Returns "dsrun, pid 7 on host a, since ..." from the content of a lock file. A holder that has
// not written its name yet is another dsrun.
std::string DescribeHolder(const std::string& content) {
  const Json holder = Json::parse(content, nullptr, /*allow_exceptions=*/false);
  try {
    return "dsrun, pid " + std::to_string(holder.at("pid").get<int>()) + " on host " +
           Printable(holder.at("host").get<std::string>()) + ", since " +
           FormatTime(holder.at("since_unix_seconds").get<std::time_t>());
  } catch (const Json::exception&) {
    return "another dsrun";
  }
}

// True for a file that a dsrun has made. Another program's file of this name is not overwritten.
bool IsOurs(const std::string& content) {
  return content.empty() ||
         Json::parse(content, nullptr, /*allow_exceptions=*/false).contains("dsrun");
}

bool IsHeldByAnother(int error) { return error == EAGAIN || error == EACCES; }

bool HasNoLocks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

Status CannotLock(const fs::path& file, int error) {
  const Status status = ErrnoError(error, file.string() + ": cannot lock it");
  if (!HasNoLocks(error)) return status;
  return Status(status.code(),
                status.message() +
                    "; without locks two jobs could write to this folder: mount the file system "
                    "with locks (NFS: without nolock; Lustre: with flock)");
}

Status NameHolder(int fd, const fs::path& file) {
  const std::string text = DescribeThisProcess().dump() + "\n";
  if (::ftruncate(fd, 0) != 0) return ErrnoError(errno, file.string());
  return WriteAllAt(fd, 0, std::as_bytes(std::span(text)), file.string(), FileSystem::System());
}

}  // namespace

int RunLock::LockOpenFile(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  int result = -1;
  do {
    result = ::fcntl(fd, F_OFD_SETLK, &whole);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

StatusOr<RunLock> RunLock::Take(const fs::path& folder, const LockCall& lock) {
  const fs::path path = folder / "job.lock";
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) return ErrnoError(errno, path.string());
  const int error = lock(file.get());
  if (error != 0 && !IsHeldByAnother(error)) return CannotLock(path, error);
  DS_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxBytes));
  if (error != 0) {
    return FailedPreconditionError(folder.string() + " is in use by " + DescribeHolder(content));
  }
  if (!IsOurs(content)) {
    return AlreadyExistsError(path.string() + " is not a file of dsrun's");
  }
  DS_RETURN_IF_ERROR(NameHolder(file.get(), path));
  return RunLock(std::move(file), path);
}

Status RunLock::TakeOver() const { return NameHolder(file_.get(), path_); }

}  // namespace ds::cli
