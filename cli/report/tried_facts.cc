#include "cli/report/tried_facts.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "runtime/base/clock.h"
#include "runtime/base/unique_fd.h"
#include "runtime/offload/file_tier.h"
#include "runtime/process/pipe.h"

namespace ds::cli {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

class SpawnActions {
 public:
  SpawnActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, int out, int err) {
  SpawnActions actions;
  ::posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(actions.get(), out, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(actions.get(), err, STDERR_FILENO);
  std::vector<char*> arguments;
  arguments.reserve(argv.size() + 1);
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int error =
      ::posix_spawn(&child, arguments[0], actions.get(), nullptr, arguments.data(), environ);
  if (error != 0) return ErrnoError(error, argv[0]);
  return child;
}

// Reads the available bytes; closes the pipe at its end.
void TakeFrom(UniqueFd* pipe, std::string* text) {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(pipe->get(), buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) return pipe->Reset();
  text->append(buffer.data(), std::min<std::size_t>(static_cast<std::size_t>(got),
                                                    kMaxBytes - std::min(kMaxBytes, text->size())));
}

// Reads until both pipes are closed; returns false after the time limit.
bool ReadBoth(UniqueFd out, UniqueFd err, std::chrono::milliseconds time_limit,
              ChildOutput* output) {
  const Clock& clock = Clock::System();
  const auto deadline = clock.Now() + time_limit;
  while (out.valid() || err.valid()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.Now());
    if (left.count() <= 0) return false;
    // poll ignores an entry whose descriptor is -1.
    std::array<pollfd, 2> waited = {{{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}}};
    if (::poll(waited.data(), waited.size(), static_cast<int>(left.count())) < 0) continue;
    if (waited[0].revents != 0) TakeFrom(&out, &output->out);
    if (waited[1].revents != 0) TakeFrom(&err, &output->err);
  }
  return true;
}

int WaitFor(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

StatusOr<ChildOutput> RunAndRead(const std::vector<std::string>& argv,
                                 std::chrono::milliseconds time_limit) {
  DS_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  DS_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  DS_ASSIGN_OR_RETURN(const pid_t child, Spawn(argv, out.write.get(), err.write.get()));
  out.write.Reset();
  err.write.Reset();
  ChildOutput output;
  const bool ended = ReadBoth(std::move(out.read), std::move(err.read), time_limit, &output);
  if (!ended) ::kill(child, SIGKILL);
  output.exit_status = WaitFor(child);
  if (!ended) {
    return DeadlineExceededError(argv[0] + " gave no answer in " +
                                 std::to_string(time_limit.count()) + " ms");
  }
  return output;
}

namespace {

// Long enough to load LibTorch with its CUDA libraries from a cold disk.
constexpr std::chrono::seconds kTimeLimit{60};

// Returns null if there is no such field.
nlohmann::json FieldAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json::json_pointer where(pointer);
  return json.contains(where) ? json.at(where) : nlohmann::json();
}

std::string TextAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json field = FieldAt(json, pointer);
  if (field.is_string()) return field.get<std::string>();
  return field.is_number() ? field.dump() : "";
}

bool FlagAt(const nlohmann::json& json, const char* pointer) {
  const nlohmann::json field = FieldAt(json, pointer);
  return field.is_boolean() && field.get<bool>();
}

// Returns the last line with text, in which a failing program usually gives the reason.
std::string LastFilledLine(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "";
  const std::size_t newline = text.rfind('\n', end);
  const std::size_t start = newline == std::string::npos ? 0 : newline + 1;
  return text.substr(start, end - start + 1);
}

}  // namespace

DsrankFacts ParseDsrankFacts(std::string_view json_text) {
  const nlohmann::json json = nlohmann::json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  DsrankFacts facts;
  if (!json.is_object()) {
    facts.problem = "its answer is not a JSON object";
    return facts;
  }
  facts.version = TextAt(json, "/dsrun");
  facts.libtorch = TextAt(json, "/libtorch");
  facts.compiler = TextAt(json, "/compiler");
  facts.cpu_capability = TextAt(json, "/cpu_capability");
  facts.amx_faults = FlagAt(json, "/amx/faults");
  facts.cuda_plugin = FlagAt(json, "/cuda/plugin");
  facts.cuda_problem = TextAt(json, "/cuda/reason");
  facts.cuda = TextAt(json, "/cuda/cuda");
  facts.nccl = TextAt(json, "/cuda/nccl");
  const nlohmann::json devices = FieldAt(json, "/cuda/devices");
  if (devices.is_number_unsigned()) facts.cuda_devices = devices.get<int>();
  return facts;
}

DsrankFacts AskDsrank(const std::filesystem::path& dsrank) {
  DsrankFacts facts;
  const StatusOr<ChildOutput> output = RunAndRead({dsrank.string(), "facts"}, kTimeLimit);
  if (!output.ok()) {
    facts.problem = output.status().message();
  } else if (output->exit_status != 0) {
    facts.problem = dsrank.string() + " ended with status " + std::to_string(output->exit_status);
    const std::string why = LastFilledLine(output->err);
    if (!why.empty()) facts.problem += ": " + why;
  } else {
    facts = ParseDsrankFacts(output->out);
  }
  facts.path = dsrank;
  return facts;
}

OffloadFacts TryOffload(const std::filesystem::path& folder) {
  const auto tier = offload::FileTier::Open({.folders = {folder}});
  if (!tier.ok()) return {.problem = tier.status().message()};
  const offload::FolderFacts& facts = (*tier)->files().front().facts();
  return {.problem = {},
          .file_system = facts.file_system,
          .in_memory = facts.in_memory,
          .direct = facts.direct,
          .why_not_ring = (*tier)->why_not_ring()};
}

}  // namespace ds::cli
