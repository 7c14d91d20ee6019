#pragma once

// Ranks as processes: forks one per rank, each of which joins the world through ConnectWorld.
//
//     RankProcesses ranks(4, [](comm::Communicator& comm) { comm.Barrier(); return 0; });
//     EXPECT_EQ(ranks.Wait(2).exit_code, 0);
//
// Use it before the test program has threads of its own: the children go on after the fork.
// Every child that still runs when the object goes is killed.

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/unique_fd.h"
#include "runtime/comm/join_job.h"
#include "runtime/comm/rank_identity.h"

namespace ds::testing {

// The end of a rank.
struct RankEnd {
  int exit_code = -1;   // -1: by a signal
  int signal = 0;       // 0: by itself
  std::string message;  // what() of the exception that ended it, or why it could not connect
};

// Exit codes of ranks that did not reach the end of their function.
inline constexpr int kRankThrew = 101;
inline constexpr int kRankDidNotConnect = 102;

class RankProcesses {
 public:
  using Body = std::function<int(comm::Communicator&)>;  // returns the exit code

  // All on one host.
  RankProcesses(int world_size, const Body& body, const comm::ConnectOptions& options = {},
                device::DeviceChoice device = device::DeviceChoice::kCpu)
      : RankProcesses(std::vector{world_size}, body, options, device) {}
  // Entry [h]: the ranks of "host" h, which talk to those of the others over TCP.
  RankProcesses(const std::vector<int>& ranks_on_hosts, const Body& body,
                comm::ConnectOptions options = {},
                device::DeviceChoice device = device::DeviceChoice::kCpu);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  pid_t pid(int rank) const { return ranks_[static_cast<std::size_t>(rank)].pid; }
  // Blocks until the rank has ended. Once per rank.
  RankEnd Wait(int rank);

 private:
  struct Rank {
    pid_t pid = -1;   // -1: waited for
    UniqueFd report;  // its message, then end of file
  };
  void Start(const comm::RankIdentity& identity, const Body& body,
             const comm::ConnectOptions& options, device::DeviceChoice device);

  std::vector<Rank> ranks_;
};

}  // namespace ds::testing
