#pragma once

// AgentAddress is the place where the agent of a job accepts connections: a socket in its run
// folder, or, if the file system of that folder has no sockets, one in a private folder. The file
// agent.json of the run folder names it, with the process and its host, while the agent runs.
//
// Thread-safe.

#include <filesystem>
#include <string>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/process/private_folder.h"

namespace ds::cli {

struct AgentAddress {
  std::string host;  // by HostName
  std::string mark;  // of the process (runtime/base/owner_mark.h)
  int pid = 0;
  std::filesystem::path socket;
};

// AgentSocket listens for fronts, and removes its files at the end. Requires the run folder's lock
// (job/run_directory.h): a socket of an earlier agent is replaced.
class AgentSocket {
 public:
  AgentSocket() = default;
  static StatusOr<AgentSocket> Listen(const std::filesystem::path& run_directory);
  AgentSocket(AgentSocket&&) = default;
  AgentSocket& operator=(AgentSocket&&) = default;
  ~AgentSocket() { Remove(); }

  int fd() const { return fd_.get(); }
  void Remove();

 private:
  UniqueFd fd_;
  std::filesystem::path run_directory_;
  std::filesystem::path socket_;
  PrivateFolder folder_;  // if the socket is there
};

// Returns kNotFound if no agent has its address in the run folder.
StatusOr<AgentAddress> ReadAgentAddress(const std::filesystem::path& run_directory);

// Connects to the agent of the job in `run_directory`. kNotFound: the job has none, or it has
// ended; kFailedPrecondition: it runs on another host, which the message names. The connection is
// one with a process of this user.
StatusOr<UniqueFd> ConnectToAgent(const std::filesystem::path& run_directory);
// Waits for an agent that takes over the job of one that was killed, and connects to it. Returns
// the error of ConnectToAgent if there is none after some seconds.
StatusOr<UniqueFd> AwaitNextAgent(const std::filesystem::path& run_directory);

}  // namespace ds::cli
