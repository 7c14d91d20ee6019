#include "daemon/ranks/python_facts.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "daemon/ranks/rank_command.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/pipe.h"

namespace ds::daemon {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

// Code of the environment (sitecustomize) may print, too.
constexpr std::string_view kMark = "dsrun-python ";
constexpr std::size_t kMostOutput = 64 * 1024;

// find_spec locates a package by every rule of the interpreter (site-packages, .pth files, editable
// installations) and does not import it. The empty entry of sys.path is the working directory,
// which a script does not have there.
constexpr char kQuestion[] = R"(
import sys
torch = ''
try:
    import importlib.util, os
    sys.path[:] = [folder for folder in sys.path if folder]
    spec = importlib.util.find_spec('torch')
    if spec and spec.origin:
        with open(os.path.join(os.path.dirname(spec.origin), 'version.py')) as lines:
            for line in lines:
                if line.startswith('__version__'):
                    torch = line.split('=')[-1].strip().strip('"\'')
except Exception:
    pass
print('\ndsrun-python %d.%d.%d %s' % (sys.version_info[:3] + (torch,)))
)";

using Variables = std::map<std::string, std::string>;

Variables MergeEnvironment(const v1::PrepareRequest& request,
                           const std::vector<std::string>& environment) {
  Variables variables;
  for (const std::string& entry : environment) {
    const std::size_t end = entry.find('=');
    if (end != std::string::npos) variables.emplace(entry.substr(0, end), entry.substr(end + 1));
  }
  for (const v1::EnvironmentVariable& variable : request.environment()) {
    variables[variable.name()] = variable.value();
  }
  return variables;
}

std::vector<char*> MakePointers(std::vector<std::string>* words) {
  std::vector<char*> pointers;
  for (std::string& word : *words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct SpawnSettings {
  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

// A child process that leads a group. The destructor ends the group and reaps the child.
struct Child {
  Child(pid_t process, UniqueFd read_end) : pid(process), output(std::move(read_end)) {}
  ~Child() {
    ::kill(-pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  const pid_t pid;
  const UniqueFd output;
};

std::optional<pid_t> Spawn(const std::string& executable, const v1::PrepareRequest& request,
                           const Variables& variables, int output) {
  std::vector<std::string> argv = {request.program(), "-c", kQuestion};
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  SpawnSettings settings;
  if (!request.working_directory().empty()) {
    posix_spawn_file_actions_addchdir_np(&settings.files, request.working_directory().c_str());
  }
  posix_spawn_file_actions_addopen(&settings.files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&settings.files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&settings.files, STDIN_FILENO, STDERR_FILENO);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&settings.attributes, &signals);  // the daemon blocks its own
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&settings.attributes, &signals);
  posix_spawnattr_setflags(&settings.attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  if (::posix_spawn(&pid, executable.c_str(), &settings.files, &settings.attributes,
                    MakePointers(&argv).data(), MakePointers(&environment).data()) != 0) {
    return std::nullopt;
  }
  return pid;
}

// Returns the complete line with the mark, without it; none if there is none by then.
std::optional<std::string> ReadAnswer(int output, TimePoint deadline) {
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < kMostOutput) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd readable{output, POLLIN, 0};
    const int count = ::poll(&readable, 1, static_cast<int>(std::max<long>(left.count(), 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    const ssize_t size = ::read(output, buffer.data(), buffer.size());
    if (size <= 0) return std::nullopt;
    text.append(buffer.data(), static_cast<std::size_t>(size));
    const std::size_t mark = text.find("\n" + std::string(kMark));
    if (mark == std::string::npos) continue;
    const std::size_t start = mark + 1 + kMark.size();
    const std::size_t end = text.find('\n', start);
    if (end != std::string::npos) return text.substr(start, end - start);
  }
  return std::nullopt;
}

}  // namespace

std::optional<v1::Python> DescribePython(const v1::PrepareRequest& request,
                                         const std::vector<std::string>& environment) {
  const TimePoint deadline = std::chrono::steady_clock::now() + kPythonTimeout;
  const Variables variables = MergeEnvironment(request, environment);
  const auto path = variables.find("PATH");
  const auto executable =
      FindProgram(request.program(), path == variables.end() ? kDefaultSearchPath : path->second,
                  request.working_directory());
  if (!executable.ok()) return std::nullopt;
  StatusOr<Pipe> pipe = MakePipe();
  if (!pipe.ok()) return std::nullopt;
  const std::optional<pid_t> pid = Spawn(*executable, request, variables, pipe->write.get());
  if (!pid) return std::nullopt;
  pipe->write.Reset();
  const Child child(*pid, std::move(pipe->read));
  const std::optional<std::string> answer = ReadAnswer(child.output.get(), deadline);
  if (!answer) return std::nullopt;
  v1::Python python;
  python.set_version(answer->substr(0, answer->find(' ')));
  python.set_torch(answer->substr(answer->find(' ') + 1));
  return python;
}

}  // namespace ds::daemon
