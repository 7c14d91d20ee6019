#include "daemon/ranks/start_error.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/number_list.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// The kernel reads the same number of bytes of a script's first line.
constexpr std::size_t kFirstLineBytes = 256;

std::string ReadFirstLine(const fs::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, kFirstLineBytes> buffer{};
  const ssize_t got = file.valid() ? ::read(file.get(), buffer.data(), buffer.size()) : 0;
  const std::string text(buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  return text.substr(0, text.find('\n'));
}

// The file exists, so ENOENT is about a file that it needs, and ENOEXEC about its format.
std::string ExplainExecError(const fs::path& path, int error) {
  const std::string line = ReadFirstLine(path);
  if (error == ENOEXEC) {
    return line.starts_with(
               "\x7F"
               "ELF")
               ? " (a program for another kind of machine?)"
               : " (a script needs '#!' and its interpreter in the first line, for example "
                 "#!/bin/sh)";
  }
  if (error != ENOENT) return "";
  if (!line.starts_with("#!")) {
    return " (the file is there; the loader it was linked for is not on this host)";
  }
  if (line.ends_with('\r')) {
    return " (its first line ends as on Windows: sed -i 's/\\r$//' " + path.filename().string() +
           ")";
  }
  const std::size_t start = line.find_first_not_of(" \t", 2);
  const std::string interpreter =
      start == std::string::npos ? ""
                                 : line.substr(start, line.find_first_of(" \t", start) - start);
  return " (its first line names the interpreter " + interpreter + ", which is not on this host)";
}

Status MakeExecError(const RankCommand& command, int error) {
  const Status status = ErrnoError(error, "cannot execute " + command.executable);
  const fs::path path = fs::path(command.working_directory) / command.executable;
  return FailedPreconditionError(status.message() + ExplainExecError(path, error));
}

}  // namespace

Status MakeStartError(const RankChild& child, const RankCommand& command) {
  switch (child.failed_step) {
    case ChildStep::kWorkingDirectory:
      return ErrnoError(child.failed_errno, "working directory " + command.working_directory);
    case ChildStep::kCores:
      return ErrnoError(child.failed_errno,
                        "binding " + command.executable + " to cores " +
                            FormatNumberList({command.cores.begin(), command.cores.end()}) +
                            ", of which this host allows only some or none");
    case ChildStep::kMemory:
      return ErrnoError(child.failed_errno,
                        "binding the memory of " + command.executable + " to its nodes");
    case ChildStep::kLimits:
      return ErrnoError(child.failed_errno, "setting the --ulimit of " + command.executable +
                                                " (raising a hard limit takes privileges)");
    case ChildStep::kExecute:
      return MakeExecError(command, child.failed_errno);
    case ChildStep::kNone:
    case ChildStep::kSession:
    case ChildStep::kDescriptors:
      break;
  }
  return ErrnoError(child.failed_errno, "setting up the process of " + command.executable);
}

}  // namespace ds::daemon
