#include "cli/agent/agent_address.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "cli/host/deadlines.h"
#include "runtime/base/files.h"
#include "runtime/base/host_name.h"
#include "runtime/base/owner_mark.h"
#include "runtime/process/unix_socket.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kAddressFile = "agent.json";
constexpr const char* kSocketFile = "agent.sock";
constexpr unsigned kPrivateMode = 0600;

// Returns a path to `name` in the open folder. It is short: the path of a socket has 107 bytes.
fs::path PathThroughDescriptor(const UniqueFd& folder, const fs::path& name) {
  return fs::path("/proc/self/fd") / std::to_string(folder.get()) / name;
}

StatusOr<UniqueFd> OpenFolder(const fs::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, folder.string());
  return fd;
}

StatusOr<UniqueFd> ListenIn(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const UniqueFd opened, OpenFolder(folder));
  if (::unlinkat(opened.get(), kSocketFile, 0) != 0 && errno != ENOENT) {
    return ErrnoError(errno, (folder / kSocketFile).string());
  }
  return ListenUnix(PathThroughDescriptor(opened, kSocketFile));
}

Status WriteAddress(const fs::path& run_directory, const fs::path& socket) {
  const Json json = {{"host", HostName()},
                     {"pid", ::getpid()},
                     {"mark", MakeOwnMark()},
                     {"socket", socket.string()}};
  return WriteFileAtomically(run_directory / kAddressFile,
                             json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n",
                             kPrivateMode, Durability::kAtomic);
}

Status CheckPeer(const UniqueFd& connection, const fs::path& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoError(errno, socket.string());
  }
  if (peer.uid == ::geteuid() || ::geteuid() == 0) return OkStatus();
  return PermissionDeniedError(socket.string() + ": a process of another user listens there");
}

}  // namespace

StatusOr<AgentSocket> AgentSocket::Listen(const fs::path& run_directory) {
  AgentSocket socket;
  socket.run_directory_ = run_directory;
  fs::path folder = run_directory;
  StatusOr<UniqueFd> listening = ListenIn(folder);
  if (!listening.ok()) {  // a file system without sockets
    DS_ASSIGN_OR_RETURN(socket.folder_, PrivateFolder::Make());
    folder = socket.folder_.path();
    listening = ListenIn(folder);
    if (!listening.ok()) return listening.status();
  }
  socket.fd_ = *std::move(listening);
  socket.socket_ = folder / kSocketFile;
  DS_RETURN_IF_ERROR(WriteAddress(run_directory, socket.socket_));
  return socket;
}

void AgentSocket::Remove() {
  if (!fd_.valid()) return;
  // First, else the job would look lost.
  ::unlink((run_directory_ / kAddressFile).c_str());
  ::unlink(socket_.c_str());
  fd_.Reset();
  folder_.Remove();
}

StatusOr<AgentAddress> ReadAgentAddress(const fs::path& run_directory) {
  const fs::path path = run_directory / kAddressFile;
  const StatusOr<std::string> read = ReadFile(path);
  if (read.status().code() == StatusCode::kNotFound) {
    return NotFoundError("the job of " + run_directory.string() + " does not run");
  }
  DS_ASSIGN_OR_RETURN(const std::string text, read);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto has = [&](const char* name) { return json.contains(name) && json[name].is_string(); };
  if (!json.is_object() || !has("host") || !has("mark") || !has("socket")) {
    return InvalidArgumentError(path.string() + " is damaged: it names no agent");
  }
  const auto pid = json.find("pid");
  return AgentAddress{.host = json["host"],
                      .mark = json["mark"],
                      .pid = pid != json.end() && pid->is_number_integer() ? pid->get<int>() : 0,
                      .socket = json["socket"].get<std::string>()};
}

StatusOr<UniqueFd> ConnectToAgent(const fs::path& run_directory) {
  DS_ASSIGN_OR_RETURN(const AgentAddress address, ReadAgentAddress(run_directory));
  if (IsOwnerGone(address.mark)) {
    return NotFoundError("the agent of the job, process " + std::to_string(address.pid) +
                         ", is gone");
  }
  DS_ASSIGN_OR_RETURN(const UniqueFd folder, OpenFolder(address.socket.parent_path()));
  StatusOr<UniqueFd> connection = ConnectUnix(PathThroughDescriptor(folder, kSocketFile));
  if (connection.ok()) {
    DS_RETURN_IF_ERROR(CheckPeer(*connection, address.socket));
    return connection;
  }
  if (address.host == HostName()) {
    return NotFoundError("the agent of the job, process " + std::to_string(address.pid) +
                         ", does not accept connections");
  }
  return FailedPreconditionError("the agent of the job runs on host " + address.host +
                                 ", process " + std::to_string(address.pid) +
                                 ": use this command there");
}

StatusOr<UniqueFd> AwaitNextAgent(const fs::path& run_directory) {
  const UniqueFd changes(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ::inotify_add_watch(changes.get(), run_directory.c_str(), IN_MOVED_TO | IN_DELETE);
  const auto deadline = std::chrono::steady_clock::now() + deadlines::kTakeOver;
  for (;;) {
    StatusOr<UniqueFd> connection = ConnectToAgent(run_directory);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    // Without agent.json the job has ended.
    if (connection.ok() || left.count() <= 0 || !ReadAgentAddress(run_directory).ok()) {
      return connection;
    }
    pollfd changed{changes.get(), POLLIN, 0};
    ::poll(&changed, 1, static_cast<int>(left.count()));
    std::array<char, 4096> ignored;
    while (::read(changes.get(), ignored.data(), ignored.size()) > 0) {
    }
  }
}

}  // namespace ds::cli
