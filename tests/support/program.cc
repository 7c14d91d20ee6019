#include "tests/support/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "runtime/base/parse_number.h"

namespace ds::testing {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Pipe MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// A file in memory that holds `text` and is read from its start.
UniqueFd FileOf(const std::string& text) {
  UniqueFd file(::memfd_create("input", MFD_CLOEXEC));
  if (::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("memfd_create");
  }
  return file;
}

// What execve reads: pointers to `words`, which must outlive it.
std::vector<char*> PointersTo(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// This process's environment with `changes` ("NAME=VALUE") over it.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& changes) {
  std::map<std::string, std::string> variables;
  const auto set = [&variables](const std::string& variable) {
    variables[variable.substr(0, variable.find('='))] = variable;
  };
  for (char** variable = environ; *variable != nullptr; ++variable) set(*variable);
  for (const std::string& variable : changes) set(variable);
  std::vector<std::string> environment;
  for (const auto& [name, variable] : variables) environment.push_back(variable);
  return environment;
}

struct Streams {
  int in, out, err;
};

// In the child, between fork and exec: another thread may have held the allocator's locks at the
// fork, and nobody gives them back here, so nothing may be allocated.
[[noreturn]] void Exec(char* const* argv, char** environment, const ProgramOptions& options,
                       const Streams& streams) {
  ::dup2(streams.in, STDIN_FILENO);
  ::dup2(streams.out, STDOUT_FILENO);
  ::dup2(streams.err, STDERR_FILENO);
  if (options.owns_terminal && (::setsid() < 0 || ::ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0)) {
    ::_exit(126);
  }
  for (const int signal : options.ignored_signals) ::signal(signal, SIG_IGN);
  if (!options.working_directory.empty() && ::chdir(options.working_directory.c_str()) != 0)
    ::_exit(126);
  if (options.file_size_limit > 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{options.file_size_limit, options.file_size_limit};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  environ = environment;  // PATH is looked up in it, too
  ::execvp(argv[0], argv);
  ::_exit(127);
}

// Appends what can be read; closes the descriptor at its end.
void Drain(UniqueFd& fd, std::string& text) {
  char buffer[1 << 16];
  const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
  if (got > 0) {
    text.append(buffer, static_cast<std::size_t>(got));
  } else {
    fd.Reset();
  }
}

}  // namespace

Program::Program(const std::vector<std::string>& argv, const ProgramOptions& options) {
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  const UniqueFd in = FileOf(options.input);
  const std::vector<std::string> environment = EnvironmentWith(options.environment);
  const std::vector<char*> arguments = PointersTo(argv);
  std::vector<char*> variables = PointersTo(environment);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0)
    Exec(arguments.data(), variables.data(), options,
         {options.input_fd >= 0 ? options.input_fd : in.get(),
          options.output_fd >= 0 ? options.output_fd : out.write.get(),
          options.error_fd >= 0 ? options.error_fd : err.write.get()});
  out_ = std::move(out.read);
  err_ = std::move(err.read);
  timer_.Reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  itimerspec limit{};
  limit.it_value.tv_sec = options.time_limit.count();
  ::timerfd_settime(timer_.get(), 0, &limit, nullptr);
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

bool Program::ReadSome() {
  if (!out_.valid() && !err_.valid()) return false;
  pollfd fds[3] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}, {timer_.get(), POLLIN, 0}};
  while (::poll(fds, 3, -1) < 0) {
  }
  if (fds[2].revents != 0) {
    // Its descendants may hold the pipes: what they still print is not waited for.
    Signal(SIGKILL);
    out_.Reset();
    err_.Reset();
    return false;
  }
  if (fds[0].revents != 0) Drain(out_, result_.out);
  if (fds[1].revents != 0) Drain(err_, result_.err);
  return true;
}

bool Program::WaitForOutput(const std::string& text) {
  while (result_.out.find(text) == std::string::npos &&
         result_.err.find(text) == std::string::npos) {
    if (!ReadSome()) return false;
  }
  return true;
}

void Program::Signal(int signal) {
  if (pid_ > 0) ::kill(pid_, signal);
}

ProgramResult Program::Wait() {
  while (ReadSome()) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result_;
}

ProgramResult RunProgram(const std::vector<std::string>& argv, const ProgramOptions& options) {
  Program program(argv, options);
  return program.Wait();
}

std::vector<pid_t> ProcessesWith(const std::string& mark) {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto pid = ParseNumber<pid_t>(entry.path().filename().string());
    if (!pid || *pid == ::getpid()) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    if (environment.find(mark) != std::string::npos) found.push_back(*pid);
  }
  return found;
}

pid_t ParentOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;) {
    pid_t parent = 0;
    if (word == "PPid:" && file >> parent) return parent;
  }
  return 0;
}

TemporaryFolder::TemporaryFolder() : TemporaryFolder(std::filesystem::temp_directory_path()) {}

TemporaryFolder::TemporaryFolder(const std::filesystem::path& parent) {
  std::string pattern = (parent / "dsrun-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ds::testing
