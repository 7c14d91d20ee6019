// Ranks of other hosts, over SSH and TLS, do what ranks of this machine do: what they write, what
// they are asked, how they end.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <memory>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/e2e/ssh_job.h"
#include "tests/support/terminal.h"

namespace ds::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class SshRanksTest : public SshJobOverEach {
 protected:
  ProgramOptions Options() {
    return {.environment = hosts().Environment(), .working_directory = folder()};
  }
  std::unique_ptr<Program> Start(const std::vector<std::string>& flags, const std::string& script) {
    return std::make_unique<Program>(Command(flags, script), Options());
  }
  std::string Log(const std::string& name) const {
    return ReadFile(run() / "logs" / "0" / name).value();
  }
  // For a hostfile: the daemon and its ranks are a user's who may have so many processes. He has
  // none but those.
  static std::string FewProcesses(int count) {
    return "exec=\"/usr/bin/setpriv --reuid=64322 --regid=64322 --clear-groups /usr/bin/prlimit "
           "--nproc=" +
           std::to_string(count) + "\"";
  }
};

INSTANTIATE_TEST_SUITE_P(Launchers, SshRanksTest, Launchers(), LauncherName);

TEST_P(SshRanksTest, AQuestionIsSeenBeforeItIsAnswered) {
  WriteHostfile(1);
  Terminal terminal;
  ProgramOptions options = Options();
  options.environment.emplace_back("TERM=xterm");
  options.input_fd = terminal.fd();
  options.owns_terminal = true;
  options.output_fd = terminal.fd();
  Program dsrun(Command({},
                        "[ $RANK = 0 ] || exit 0; printf 'your name? '; read name; "
                        "echo hello, $name"),
                options);
  terminal.LeaveToProgram();
  ASSERT_TRUE(terminal.WaitFor("0@h0: your name? ")) << dsrun.err();
  terminal.Type("Ada\n");
  EXPECT_TRUE(terminal.WaitFor("hello, Ada\r\n")) << dsrun.err();
  EXPECT_EQ(dsrun.Wait().status, 0) << dsrun.err();
}

// The filter is far from done when its rank is, and rests for longer than a lost helper would get.
TEST_P(SshRanksTest, NoLineIsLostInASlowFilter) {
  WriteHostfile(1);
  const ProgramResult result =
      Run({"--quiet"},
          "[ $RANK = 1 ] || exit 0; mkfifo /tmp/filter; while read line; do echo $line; "
          "case $line in *000) sleep 0.1;; esac; done </tmp/filter & exec >/tmp/filter; "
          "rm /tmp/filter; exec seq 30000");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Log("rank-00001.out") == RunProgram({"seq", "30000"}).out);
  ExpectNothingLeft(1);
}

TEST_P(SshRanksTest, LinesCarryTheirTimeOnRequest) {
  WriteHostfile(1);
  const ProgramResult result = Run({"--timestamps"}, "echo rank $RANK");
  EXPECT_EQ(result.status, 0) << result.err;
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(result.out, ContainsRegex("20[0-9-]+T[0-9:]+\\.[0-9][0-9][0-9]Z " + rank + "@h" +
                                          rank + ": rank " + rank + "\n"));
  }
}

TEST_P(SshRanksTest, SigusrGoesToEveryRank) {
  WriteHostfile(1);
  const auto dsrun = Start({}, R"(
      trap 'echo usr1 $RANK' USR1
      trap 'kill $!; echo usr2 $RANK; exit 0' USR2
      echo ready $RANK
      while :; do sleep 600 & wait $!; kill $!; done)");
  for (const char* text : {"ready 0", "ready 1"}) ASSERT_TRUE(dsrun->WaitForOutput(text));
  dsrun->Signal(SIGUSR1);
  for (const char* text : {"usr1 0", "usr1 1"}) ASSERT_TRUE(dsrun->WaitForOutput(text));
  dsrun->Signal(SIGUSR2);
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* text : {"usr2 0", "usr2 1"}) EXPECT_THAT(result.out, HasSubstr(text));
}

// What @record of PyTorch leaves when main() raises is on that host.
TEST_P(SshRanksTest, APythonExceptionIsTheVerdictsCause) {
  WriteHostfile(1);
  const ProgramResult result =
      Run("[ $RANK = 1 ] || exec sleep 600; "
          R"(printf '{"message":{"message":"ValueError: no column","extraInfo":{"py_callstack":)"
          R"("Traceback:\\n  line 3\\nValueError: no column\\n"}}}' > "$TORCHELASTIC_ERROR_FILE"; )"
          "exit 1");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("rank 1 on h1 raised ValueError: no column"));
  EXPECT_EQ(Verdict()["cause"], "exception");
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

// The program of h1 names an interpreter that is not there, which its preflight cannot see. That of
// h0 runs by then, and what it has started has left its group.
TEST_P(SshRanksTest, ALaunchThatOneHostRefusesLeavesNothingOnTheOther) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  const std::string program = "/tmp/program";
  OnHost(0,
         "mkfifo /tmp/runs; printf '#!/bin/sh\nsetsid sleep 600 & echo >/tmp/runs; "
         "exec sleep 600\n' >" +
             program + "; chmod 755 " + program);
  OnHost(1, "printf '#!/no/interpreter\n' >" + program + "; chmod 755 " + program);
  WriteHostfile(1);
  std::vector<std::string> command = Command({}, "");
  command.resize(command.size() - 3);
  command.push_back(program);
  const ProgramResult result = RunProgram(command, Options());
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("host h1 could not start its ranks: rank 1: "));
  EXPECT_THAT(result.err, HasSubstr("/no/interpreter, which is not on this host"));
  for (int i = 0; i < 2; ++i) {
    OnHost(i, "rm -f /tmp/runs " + program);
    ExpectNothingLeft(i);
  }
}

TEST_P(SshRanksTest, AHostWithTooFewProcessesIsRefused) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(hosts().HostfileLine(0, 1) + "\n" + hosts().HostfileLine(1, 1, FewProcesses(8)));
  ExpectRefused({}, {"  h1    starting dsrund  ", " threads are needed and ", "ulimit -u"});
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

// Their leases go on, and one stop ends them.
TEST_P(SshRanksTest, ReportsAndStopsRanksThatUseUpTheProcessesOfTheirHost) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(hosts().HostfileLine(0, 1) + "\n" + hosts().HostfileLine(1, 1, FewProcesses(150)));
  // From then on two leases pass: longer than the daemon of h1 would be without its renewals.
  const auto dsrun =
      Start({"--lease_seconds", "4", "--grace_seconds", "1"},
            "[ $RANK = 1 ] || exec sleep 600; "
            "trap 'echo full; exec /usr/bin/python3 -c \"import time; time.sleep(8); "
            R"sh(print(\"later\", flush=True); time.sleep(600)"' EXIT; )sh"
            "while :; do sleep 600 & done 2>/dev/null");
  ASSERT_TRUE(dsrun->WaitForOutput("1@h1: full\n")) << dsrun->err();
  ASSERT_TRUE(dsrun->WaitForOutput("1@h1: later\n")) << dsrun->err();
  dsrun->Signal(SIGTERM);
  const ProgramResult result = dsrun->Wait();
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  EXPECT_EQ(Verdict()["cause"], "user_stop");
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

// Far more than the pipe takes that nobody reads; the logs have it.
TEST_P(SshRanksTest, ABlockedConsoleDelaysNothing) {
  WriteHostfile(1);
  const SharedFolder shared;
  const std::string written = (shared.path() / "written").string();
  for (const char* rank : {"0", "1"}) ASSERT_EQ(::mkfifo((written + rank).c_str(), 0600), 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd unread(ends[0]);
  const UniqueFd pipe(ends[1]);
  ProgramOptions options = Options();
  options.output_fd = pipe.get();
  Program dsrun(Command({}, "seq 300000; echo >'" + written + "'$RANK; exec sleep 600"), options);
  for (const char* rank : {"0", "1"}) ASSERT_EQ(ReadFile(written + rank).value(), "\n");
  dsrun.Signal(SIGTERM);
  const ProgramResult result = dsrun.Wait();
  EXPECT_EQ(result.status, 143);
  EXPECT_THAT(result.err, HasSubstr("the run directory has the output that is not shown"));
  const std::string all = RunProgram({"seq", "300000"}).out;
  for (const char* log : {"rank-00000.out", "rank-00001.out"}) EXPECT_TRUE(Log(log) == all) << log;
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

}  // namespace
}  // namespace ds::testing
