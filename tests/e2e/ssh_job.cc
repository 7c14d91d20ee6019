#include "tests/e2e/ssh_job.h"

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::testing {

using ::testing::HasSubstr;

void SshJob::SetUp() {
  if (!SshHosts::Missing().empty()) return SkipWithout("namespaces", SshHosts::Missing());
  options_.namespaces = std::getenv("DSRUN_TEST_LOOPBACK") == nullptr;
}

SshHosts& SshJob::hosts() {
  if (hosts_ == nullptr) hosts_ = std::make_unique<SshHosts>(options_);
  return *hosts_;
}

void SshJob::WriteHostfile(const std::string& text) { std::ofstream(folder() / "hosts") << text; }

void SshJob::WriteHostfile(int slots, const std::string& keys) {
  std::string text;
  for (int i = 0; i < options_.count; ++i) text += hosts().HostfileLine(i, slots, keys) + "\n";
  WriteHostfile(text);
}

std::vector<std::string> SshJob::Command(std::vector<std::string> flags,
                                         const std::string& script) {
  ++runs_;
  std::vector<std::string> command = {DS_BIN_DIR "/dsrun",
                                      "--device",
                                      "cpu",
                                      "--hostfile",
                                      (folder() / "hosts").string(),
                                      "--run_dir",
                                      run().string(),
                                      "--launcher",
                                      launcher_,
                                      "--ssh_timeout",  // a busy machine starts daemons slowly
                                      "300"};
  if (!hosts().namespaces()) command.push_back("--share_machine");
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), {"--", "/bin/sh", "-c", script});
  return command;
}

ProgramResult SshJob::Run(const std::vector<std::string>& flags, const std::string& script) {
  std::vector<std::string> environment = hosts().Environment();
  environment.insert(environment.end(), environment_.begin(), environment_.end());
  return RunProgram(Command(flags, script),
                    {.environment = environment, .working_directory = folder()});
}

void SshJob::ExpectRefused(const std::vector<std::string>& flags,
                           const std::vector<std::string>& words) {
  const ProgramResult result = Run(flags, "echo started");
  EXPECT_EQ(result.status, 3);
  for (const std::string& word : words) EXPECT_THAT(result.err, HasSubstr(word));
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(Verdict()["cause"], "preflight");
  EXPECT_EQ(Verdict()["exit_code"], 3);
}

bool SshJob::BecomesEmpty(int host) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < limit) {
    if (hosts().Processes(host).empty()) return true;
    std::this_thread::yield();
  }
  return false;
}

void SshJob::ExpectNothingLeft(int host) {
  if (!hosts().namespaces()) return;  // others' processes and files are there, too
  EXPECT_TRUE(BecomesEmpty(host)) << ::testing::PrintToString(hosts().Processes(host));
  // -xdev: the checkout may be mounted below /tmp, and it is none of the job's.
  EXPECT_EQ(OnHost(host,
                   "find /tmp /run /dev/shm /root -xdev -type f -o -name dsrun-job-\\* | "
                   "grep -vE '^/run/host/|^/root/.cache/dsrun/dsrund-[0-9a-f]{16}$'"),
            "");
}

void SshJob::RemoveLastMessages(int host) {
  if (hosts().namespaces()) OnHost(host, "rm -rf /root/.cache/dsrun/log");
}

nlohmann::json SshJob::Verdict() const {
  const auto text = ReadFile(run() / "verdict.json");
  return text.ok() ? nlohmann::json::parse(*text) : nlohmann::json::object();
}

void SshJob::ExpectTakeovers(const std::string& second) {
  Program dsrun(
      Command({}, "echo up $RANK; until [ -e /tmp/go ]; do sleep 0.1; done; rm /tmp/go; echo went"),
      {.environment = hosts().Environment(), .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("0@h0: up 0\n")) << dsrun.err();
  ASSERT_TRUE(dsrun.WaitForOutput("1@" + second + ": up 1\n")) << dsrun.err();
  std::string told;
  for (int kill = 0; kill < 2; ++kill) {
    ASSERT_EQ(::kill(AgentPid(), SIGKILL), 0);
    told +=
        "dsrun: the agent of the job was ended by signal 9; another one has taken over, and the "
        "ranks go on; output that was on its way here is in the run directory only\n";
    ASSERT_TRUE(dsrun.WaitForOutput(told)) << dsrun.err();
  }
  for (int i = 0; i < 2; ++i) OnHost(i, "touch /tmp/go");
  const ProgramResult result = dsrun.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(*ReadFile(run() / "logs/0/rank-00001.out"), "up 1\nwent\n");
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

pid_t SshJob::AgentPid() const {
  const auto text = ReadFile(run() / "agent.json");
  EXPECT_TRUE(text.ok()) << text.status().message();
  const auto address = nlohmann::json::parse(text.ok() ? *text : "", nullptr, false);
  return address.is_object() ? address["pid"].get<pid_t>() : -1;
}

std::string SshJob::OnHost(int index, const std::string& script) {
  return hosts().Run(index, {"sh", "-c", script}).out;
}

}  // namespace ds::testing
