#pragma once

// DaemonJob: a real dsrund with one job, for tests: launch test_rank processes, watch them to their
// end, look at what came.

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/host/local_daemon.h"

namespace ds::procs {

namespace v1 = ::dsrun::v1;

inline constexpr char kJob[] = "test-job";

// Everything a generation's events said.
struct Outcome {
  Status watch;
  std::map<std::uint32_t, std::string> out, err;
  std::map<std::uint32_t, v1::RankExited> exits;
  std::vector<std::uint32_t> exit_order;
  std::map<std::uint32_t, std::vector<v1::RankReport>> reports;
  std::map<std::uint32_t, pid_t> pids;
  std::uint64_t events = 0;
};

class DaemonJob : public ::testing::Test {
 protected:
  using EventCallback = std::function<void(const v1::Event&)>;

  void SetUp() override;
  // Checks that nothing of the job is left.
  void TearDown() override;

  // This program is started as dsrund.
  virtual std::filesystem::path Dsrund() const;
  cli::DaemonClient& client() { return *daemon_; }
  cli::LocalDaemon& daemon() { return *daemon_; }

  // A launch of `count` ranks that run `test_rank arguments...`, grace 0.
  v1::LaunchRequest Request(int count, const std::vector<std::string>& arguments,
                            std::uint32_t generation = 1) const;
  // Changes one rank's arguments.
  static void SetArguments(v1::LaunchRequest* request, int rank,
                           const std::vector<std::string>& arguments);

  // Watches to the end; `on_event` sees each event after it was recorded in `outcome`.
  Outcome Watch(std::uint32_t generation = 1, const EventCallback& on_event = nullptr);
  // Launch must succeed.
  Outcome Run(const v1::LaunchRequest& request, const EventCallback& on_event = nullptr);

  std::unique_ptr<cli::LocalDaemon> daemon_;
};

std::string TestRankPath();

// Calls `act` once, when `count` ranks have said "ready".
std::function<void(const v1::Event&)> WhenReady(int count, std::function<void()> act);

// Tells whether a process of this pid exists.
bool Exists(pid_t pid);

// The number of descriptors that the process has open.
std::size_t CountDescriptors(pid_t pid);

}  // namespace ds::procs
