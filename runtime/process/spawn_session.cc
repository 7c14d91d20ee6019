#include "runtime/process/spawn_session.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "runtime/base/unique_fd.h"
#include "runtime/process/thread_quota.h"

namespace ds {
namespace {

struct FileActions {
  FileActions() { posix_spawn_file_actions_init(&actions); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t actions{};
};

}  // namespace

StatusOr<int> SpawnInNewSession(const std::string& program, std::vector<std::string> argv,
                                std::span<const InheritedFd> inherited) {
  int highest = -1;
  for (const InheritedFd& entry : inherited) highest = std::max(highest, entry.number);
  FileActions files;
  std::vector<UniqueFd> copies;
  for (const InheritedFd& entry : inherited) {
    // Duplicate above all target numbers, so that no dup2 overwrites a descriptor that another
    // needs.
    copies.emplace_back(::fcntl(entry.fd, F_DUPFD_CLOEXEC, highest + 1));
    if (!copies.back().valid()) return ErrnoError(errno, "fcntl");
    posix_spawn_file_actions_adddup2(&files.actions, copies.back().get(), entry.number);
  }
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &files.actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error == EAGAIN) return OutOfResourcesError(program + ": no process may be started");
  if (error != 0) return ErrnoError(error, program);
  return static_cast<int>(pid);
}

}  // namespace ds
