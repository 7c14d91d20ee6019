// dsrun report on the hosts of a hostfile, over SSH.

#include <gmock/gmock.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/e2e/ssh_job.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SshReportTest : public SshJobOverEach {
 protected:
  std::vector<std::string> ReportCommand(const std::vector<std::string>& flags) {
    std::vector<std::string> command = {
        DS_BIN_DIR "/dsrun", "--hostfile", (folder() / "hosts").string(), "--launcher", launcher_,
        "--ssh_timeout",     "10"};
    if (!hosts().namespaces()) command.push_back("--share_machine");
    command.push_back("report");
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }
  ProgramResult Report(const std::vector<std::string>& flags = {}) {
    return RunProgram(ReportCommand(flags),
                      {.environment = hosts().Environment(), .working_directory = folder()});
  }
  // Two hosts that work and one that nobody serves.
  void WriteThreeHosts(const std::string& keys_of_second = "") {
    WriteHostfile(hosts().HostfileLine(0, 1) + "\n" + hosts().HostfileLine(1, 1, keys_of_second) +
                  "\nshut slots=1 address=" + hosts().address(1) + " port=1\n");
  }
};

INSTANTIATE_TEST_SUITE_P(Launchers, SshReportTest, Launchers(), LauncherName);

TEST_P(SshReportTest, OneTableForHostsThatAnswerAndThoseThatDoNot) {
  WriteThreeHosts("workdir=/no/such/folder");
  const ProgramResult result = Report();
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_THAT(result.out, ::testing::StartsWith("report of 3 hosts\n"));
  EXPECT_THAT(result.out, HasSubstr("\nwhat differs\n"));
  EXPECT_THAT(result.out, HasSubstr("not there: h1\n"));
  EXPECT_THAT(result.out,
              HasSubstr("\nfail  workdir     h1: /no/such/folder: No such file or directory\n"));
  EXPECT_THAT(result.out, HasSubstr("\nhosts that cannot be used\nfail  refused     shut: "));
  EXPECT_THAT(result.out, HasSubstr("> is sshd running there?"));
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  ExpectNothingLeft(0);
  ExpectNothingLeft(1);
}

TEST_P(SshReportTest, JsonNamesEveryHost) {
  WriteThreeHosts();
  const auto report = nlohmann::json::parse(Report({"--json"}).out, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["level"], "fail");
  ASSERT_EQ(report["hosts"].size(), 2U);
  EXPECT_EQ(report["hosts"][0]["host"], "h0");
  EXPECT_EQ(report["hosts"][1]["host"], "h1");
  ASSERT_EQ(report["failed"].size(), 1U);
  EXPECT_EQ(report["failed"][0]["host"], "shut");
  EXPECT_EQ(report["failed"][0]["kind"], "refused");
  const auto chosen =
      nlohmann::json::parse(Report({"--json", "--exclude", "shut@h1"}).out, nullptr, false);
  ASSERT_TRUE(chosen.is_object());
  EXPECT_EQ(chosen["hosts"].size(), 1U);
  EXPECT_TRUE(chosen["failed"].empty());
}

TEST_P(SshReportTest, TwoNamesOfOneMachineAreAProblem) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(hosts().HostfileLine(0, 1) +
                "\nagain slots=1 workdir=/ address=" + hosts().address(0) + "\n");
  const ProgramResult result = Report();
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nfail  machine     again: "));
  EXPECT_THAT(Report({"--share_machine"}).out, Not(HasSubstr("machine     again")));
}

// It has started a daemon on one host and waits for the other.
TEST_P(SshReportTest, AfterCtrlCNoHostHasADaemon) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  hosts().Silence(1);
  std::vector<std::string> command = ReportCommand({"--ssh_timeout", "600"});
  Program dsrun(command, {.environment = hosts().Environment(), .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("1 of 2 hosts ready; waiting for h1"));
  dsrun.Signal(SIGINT);
  const ProgramResult result = dsrun.Wait();
  EXPECT_EQ(result.status, 128 + SIGINT);
  EXPECT_EQ(result.out, "");
  ExpectNothingLeft(0);
}

}  // namespace
}  // namespace ds::testing
