#define FUSE_USE_VERSION 31

#include "tests/support/fuse_mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

namespace ds::testing {
namespace {

namespace fs = std::filesystem;

// What the process that serves knows.
struct Served {
  int backing = -1;  // the folder
  FuseAnswers answers;
  mutable std::atomic<int> reads = 0;
};

const Served& Own() { return *static_cast<const Served*>(fuse_get_context()->private_data); }

// FUSE's "/a/b", from the folder behind.
const char* Below(const char* path) { return path[1] == '\0' ? "." : path + 1; }

int ErrorOf(int result) { return result < 0 ? -errno : result; }

int FileOf(const fuse_file_info* info) { return static_cast<int>(info->fh); }

int GetAttributes(const char* path, struct stat* into, fuse_file_info* info) {
  if (info != nullptr && info->fh != 0) return ErrorOf(::fstat(FileOf(info), into));
  return ErrorOf(::fstatat(Own().backing, Below(path), into, AT_SYMLINK_NOFOLLOW));
}

int MakeDirectory(const char* path, mode_t mode) {
  return ErrorOf(::mkdirat(Own().backing, Below(path), mode));
}

int Unlink(const char* path) { return ErrorOf(::unlinkat(Own().backing, Below(path), 0)); }

int RemoveDirectory(const char* path) {
  return ErrorOf(::unlinkat(Own().backing, Below(path), AT_REMOVEDIR));
}

int Rename(const char* from, const char* to, unsigned flags) {
  if (flags != 0 && !Own().answers.rename_flags) return -EINVAL;
  return ErrorOf(::renameat2(Own().backing, Below(from), Own().backing, Below(to), flags));
}

int KeepFile(int fd, fuse_file_info* info) {
  if (fd < 0) return -errno;
  info->fh = static_cast<std::uint64_t>(fd);
  return 0;
}

// What comes here is not aligned as O_DIRECT wants it.
int Create(const char* path, mode_t mode, fuse_file_info* info) {
  const int flags = (info->flags & ~O_DIRECT) | O_CLOEXEC;
  return KeepFile(::openat(Own().backing, Below(path), flags, mode), info);
}

int Open(const char* path, fuse_file_info* info) { return Create(path, 0, info); }

int Read(const char*, char* into, std::size_t size, off_t offset, fuse_file_info* info) {
  const int most = Own().answers.reads;
  if (most >= 0 && Own().reads++ >= most) return -EIO;
  return ErrorOf(static_cast<int>(::pread(FileOf(info), into, size, offset)));
}

int Write(const char*, const char* from, std::size_t size, off_t offset, fuse_file_info* info) {
  return ErrorOf(static_cast<int>(::pwrite(FileOf(info), from, size, offset)));
}

int Truncate(const char* path, off_t size, fuse_file_info* info) {
  if (info != nullptr) return ErrorOf(::ftruncate(FileOf(info), size));
  const int fd = ::openat(Own().backing, Below(path), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -errno;
  const int result = ErrorOf(::ftruncate(fd, size));
  ::close(fd);
  return result;
}

int SetTimes(const char* path, const timespec times[2], fuse_file_info*) {
  return ErrorOf(::utimensat(Own().backing, Below(path), times, AT_SYMLINK_NOFOLLOW));
}

// The disk stays up in these tests.
int Sync(const char*, int, fuse_file_info*) { return 0; }

int Release(const char*, fuse_file_info* info) { return ErrorOf(::close(FileOf(info))); }

int ReadDirectory(const char* path, void* into, fuse_fill_dir_t fill, off_t, fuse_file_info*,
                  fuse_readdir_flags) {
  const int fd = ::openat(Own().backing, Below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const folder = fd < 0 ? nullptr : ::fdopendir(fd);
  if (folder == nullptr) return -errno;
  while (const dirent* entry = ::readdir(folder)) {
    fill(into, entry->d_name, nullptr, 0, fuse_fill_dir_flags{});
  }
  ::closedir(folder);
  return 0;
}

int ReportSpace(const char* path, struct statvfs* into) {
  static_cast<void>(path);
  return ErrorOf(::fstatvfs(Own().backing, into));
}

int RefuseLock(const char*, fuse_file_info*, int) { return -ENOLCK; }

fuse_operations Operations(const FuseAnswers& answers) {
  fuse_operations all{};
  all.getattr = GetAttributes;
  all.mkdir = MakeDirectory;
  all.unlink = Unlink;
  all.rmdir = RemoveDirectory;
  all.rename = Rename;
  all.create = Create;
  all.open = Open;
  all.read = Read;
  all.write = Write;
  all.truncate = Truncate;
  all.utimens = SetTimes;
  all.fsync = Sync;
  all.fsyncdir = Sync;
  all.release = Release;
  all.readdir = ReadDirectory;
  all.statfs = ReportSpace;
  // Without an answer of its own the kernel keeps the locks.
  if (!answers.locks) all.flock = RefuseLock;
  return all;
}

sigset_t FreezeSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  return signals;
}

// Stops this process for each signal, and only between two requests: nothing can end the process
// whose request has been read.
void ServeUntilUnmounted(fuse_session* session, int signals) {
  ::fcntl(fuse_session_fd(session), F_SETFL, O_NONBLOCK);  // a request may be withdrawn
  fuse_buf request{};
  while (fuse_session_exited(session) == 0) {
    std::array<pollfd, 2> sources{{{signals, POLLIN, 0}, {fuse_session_fd(session), POLLIN, 0}}};
    if (::poll(sources.data(), sources.size(), -1) < 0) continue;
    signalfd_siginfo signal{};
    if (::read(signals, &signal, sizeof(signal)) == sizeof(signal)) {
      ::raise(SIGSTOP);
      continue;
    }
    const int size = fuse_session_receive_buf(session, &request);
    if (size == -EINTR || size == -EAGAIN) continue;
    if (size <= 0) return;
    fuse_session_process_buf(session, &request);
  }
}

// Writes a byte to `mounted` once there is something to see.
[[noreturn]] void Serve(const fs::path& backing, const fs::path& mount_point,
                        const FuseAnswers& answers, int mounted) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const sigset_t freeze = FreezeSignal();
  ::sigprocmask(SIG_BLOCK, &freeze, nullptr);
  const int signals = ::signalfd(-1, &freeze, SFD_CLOEXEC | SFD_NONBLOCK);
  Served served{::open(backing.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), answers, 0};
  const fuse_operations operations = Operations(answers);
  char name[] = "dsrun-test";
  char* words[] = {name, nullptr};
  fuse_args arguments = FUSE_ARGS_INIT(1, words);
  fuse* const fuse = fuse_new(&arguments, &operations, sizeof operations, &served);
  if (signals < 0 || served.backing < 0 || fuse == nullptr ||
      fuse_mount(fuse, mount_point.c_str()) != 0) {
    ::_exit(1);
  }
  if (::write(mounted, "m", 1) != 1) ::_exit(1);
  ::close(mounted);
  ServeUntilUnmounted(fuse_get_session(fuse), signals);
  ::_exit(0);
}

// Returns why not, or "".
std::string EnterOwnMountNamespace() {
  const std::string user = std::to_string(::getuid()), group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      return std::string("no mount namespace of its own: ") + std::strerror(errno);
    }
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " + user + " 1";
    std::ofstream("/proc/self/gid_map") << "0 " + group + " 1";
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return std::string("mounts stay shared: ") + std::strerror(errno);
  }
  return "";
}

}  // namespace

FuseMount::FuseMount(const fs::path& backing, const fs::path& mount_point,
                     const FuseAnswers& answers)
    : mount_point_(mount_point) {
  if (::access("/dev/fuse", R_OK | W_OK) != 0) {
    why_not_ = std::string("/dev/fuse: ") + std::strerror(errno);
    return;
  }
  why_not_ = EnterOwnMountNamespace();
  int mounted[2];
  if (!why_not_.empty() || ::pipe2(mounted, O_CLOEXEC) != 0) return;
  server_ = ::fork();
  if (server_ == 0) Serve(backing, mount_point, answers, mounted[1]);
  ::close(mounted[1]);
  char byte = 0;
  if (::read(mounted[0], &byte, 1) != 1) why_not_ = "a FUSE mount is refused";
  ::close(mounted[0]);
}

void FuseMount::Freeze() const {
  ::kill(server_, SIGUSR1);
  // It has stopped when this says so.
  ::waitpid(server_, nullptr, WUNTRACED);
}

void FuseMount::Thaw() const { ::kill(server_, SIGCONT); }

FuseMount::~FuseMount() {
  if (why_not_.empty()) ::umount2(mount_point_.c_str(), MNT_DETACH);
  // It would serve as long as a process has a file open there.
  if (server_ > 0) ::kill(server_, SIGKILL);
  if (server_ > 0) ::waitpid(server_, nullptr, 0);
}

}  // namespace ds::testing
