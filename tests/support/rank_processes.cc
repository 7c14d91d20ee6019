#include "tests/support/rank_processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <exception>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/files.h"

namespace ds::testing {
namespace {

// A port that was free a moment ago.
int FreePort() {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  DS_CHECK(bind(socket_fd.get(), generic, length) == 0);
  DS_CHECK(getsockname(socket_fd.get(), generic, &length) == 0);
  return ntohs(address.sin_port);
}

// The child's life. The communicator leaves the group before the process ends.
std::pair<int, std::string> RunRank(const comm::RankIdentity& identity,
                                    const RankProcesses::Body& body,
                                    const comm::ConnectOptions& options) {
  StatusOr<std::unique_ptr<comm::Communicator>> world =
      comm::ConnectWorld(identity, device::RankDevice{}, options);
  if (!world.ok()) return {kRankDidNotConnect, world.status().message()};
  try {
    return {body(**world), ""};
  } catch (const c10::Error& error) {
    return {kRankThrew, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {kRankThrew, error.what()};
  }
}

}  // namespace

RankProcesses::RankProcesses(int world_size, const Body& body,
                             const comm::ConnectOptions& options) {
  comm::RankIdentity identity;
  identity.world_size = identity.local_world_size = world_size;
  identity.master_port = FreePort();
  for (int rank = 0; rank < world_size; ++rank) {
    identity.rank = identity.local_rank = rank;
    std::array<int, 2> ends = {};
    DS_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0);
    const pid_t pid = fork();
    DS_CHECK(pid >= 0);
    if (pid == 0) {
      const auto [code, message] = RunRank(identity, body, options);
      const Status written = WriteAll(ends[1], message, "report");
      _exit(written.ok() ? code : 1);
    }
    ::close(ends[1]);
    ranks_.push_back({.pid = pid, .report = UniqueFd(ends[0])});
  }
}

RankProcesses::~RankProcesses() {
  for (const Rank& rank : ranks_) {
    if (rank.pid < 0) continue;
    kill(rank.pid, SIGKILL);
    waitpid(rank.pid, nullptr, 0);
  }
}

RankEnd RankProcesses::Wait(int rank) {
  Rank& process = ranks_[static_cast<std::size_t>(rank)];
  RankEnd end;
  std::array<char, 4096> buffer = {};
  ssize_t bytes = 0;
  while ((bytes = read(process.report.get(), buffer.data(), buffer.size())) > 0) {
    end.message.append(buffer.data(), static_cast<std::size_t>(bytes));
  }
  int status = 0;
  DS_CHECK(waitpid(process.pid, &status, 0) == process.pid);
  process.pid = -1;
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  return end;
}

}  // namespace ds::testing
