#pragma once

// NetworkJob: a job whose controller is this process and whose hosts are real daemons on the
// network. SSH has no part in it: the daemons are started directly.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/job/job_controller.h"
#include "cli/job/user_stop.h"
#include "tests/procs/network_daemon.h"

namespace ds::procs {

// JobListener keeps what the ranks said and the controller noticed. Called on the latter's threads.
class JobListener : public cli::JobObserver {
 public:
  void OnPrepared(const std::string&, const v1::PrepareResponse&) override {}
  Status OnEvent(const cli::HostEvent& event) override;
  void OnNotice(const std::string& notice) override;

  int expected = 2;
  std::function<void()> on_ready;  // once, when `expected` ranks have said "ready"
  std::function<void()> on_output;
  std::function<void(const std::string&)> on_notice;
  std::map<std::uint32_t, std::string> text;  // by rank
  std::vector<std::string> notices;
};

struct NetworkJobHost {
  std::string name;
  std::string address = "127.0.0.1";
  std::vector<std::string> wrapper = {};  // in front of dsrund: another network namespace
  // The target that leads to the daemon on that port; empty: straight.
  std::function<std::string(int port)> way = {};
};

class NetworkJob : public ::testing::Test {
 protected:
  // One rank that runs `argv` on each of these hosts. `input`, if any, goes to rank 0. A lost
  // host's place is taken by spare_, if it has a name, in a second generation.
  void StartJob(const std::vector<NetworkJobHost>& hosts, const std::vector<std::string>& argv,
                std::chrono::seconds lease, cli::RankInput* input = nullptr);

  NetworkJobHost spare_;
  double grace_seconds_ = 10;
  JobListener listener_;
  std::vector<pid_t> pids_;  // of the daemons, as their hosts number them
  cli::UserStop stop_;
  std::unique_ptr<cli::JobController> controller_;
  std::unique_ptr<cli::LeaseKeeper> keeper_;  // calls the controller

 private:
  class Starter : public cli::ReplacementStarter {
   public:
    explicit Starter(NetworkJob* job) : job_(*job) {}
    StatusOr<cli::StartedReplacement> StartReplacement(
        const cli::Replacement& replacement) override;

   private:
    NetworkJob& job_;
  };

  // A daemon on the host of this number, whose lease is renewed from now on.
  void StartDaemon(int number, const NetworkJobHost& host);

  // One program for every generation.
  class FixedProgram : public cli::Program {
   public:
    StatusOr<cli::RankProgram> ForGeneration(int) const override {
      return cli::RankProgram{.argv = argv};
    }

    std::vector<std::string> argv;
  };

  FixedProgram program_;
  Starter starter_{this};
  std::unique_ptr<cli::JobAuthority> authority_;
  std::chrono::seconds lease_{};
  std::vector<std::unique_ptr<cli::DaemonClient>> daemons_;
};

}  // namespace ds::procs
