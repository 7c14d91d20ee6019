#pragma once

// SshJob is what the tests of jobs over SSH share (with DSRUN_TEST_LOOPBACK set, on loopback ports
// even where namespaces work): hosts, a hostfile, the real dsrun called with both, and what it
// leaves here and there.

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/support/ssh_hosts.h"

namespace ds::testing {

class SshJob : public ::testing::Test {
 protected:
  void SetUp() override;
  // Hosts are made here, after the options have been chosen; the default is two.
  SshHosts& hosts();

  void WriteHostfile(const std::string& text);
  // The usual hostfile: every host with so many slots.
  void WriteHostfile(int slots, const std::string& keys = "");
  std::vector<std::string> Command(std::vector<std::string> flags, const std::string& script);
  // dsrun with `flags` and a shell script as the program, on the hostfile.
  ProgramResult Run(const std::vector<std::string>& flags, const std::string& script);
  ProgramResult Run(const std::string& script) { return Run({}, script); }
  // A run that must be refused: status 3, nothing started, and the words in the table.
  void ExpectRefused(const std::vector<std::string>& flags, const std::vector<std::string>& words);
  // Waits until no process of the job is left there: a daemon that has been released ends when it
  // has answered, and nobody waits for it.
  bool BecomesEmpty(int host);
  // No process, and no file but the cached daemon.
  void ExpectNothingLeft(int host);
  // Daemons that were not released leave their last messages.
  void RemoveLastMessages(int host);
  nlohmann::json Verdict() const;
  // Kills the agent of a job on two hosts twice while its ranks run, and expects them to end well
  // and to lose nothing. `second` is the name of the second host in the hostfile.
  void ExpectTakeovers(const std::string& second);
  // The process that runs the job; dsrun is its front.
  pid_t AgentPid() const;
  std::string OnHost(int index, const std::string& script);
  std::filesystem::path run() const { return folder_.path() / ("run" + std::to_string(runs_)); }
  std::filesystem::path folder() const { return folder_.path(); }

  SshHostsOptions options_;
  std::string launcher_ = "libssh";       // what --launcher is told
  std::vector<std::string> environment_;  // of dsrun, over the usual one

 private:
  TemporaryFolder folder_;
  std::unique_ptr<SshHosts> hosts_;
  int runs_ = 0;
};

// The same over each transport.
class SshJobOverEach : public SshJob, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    SshJob::SetUp();
    launcher_ = GetParam();
  }
};

inline auto Launchers() { return ::testing::Values("libssh", "ssh-client"); }
inline std::string LauncherName(const ::testing::TestParamInfo<const char*>& info) {
  return info.param == std::string("libssh") ? "libssh" : "ssh_client";
}

}  // namespace ds::testing
