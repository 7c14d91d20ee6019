// Hosts that nothing but SSH reaches: behind another host, or behind a proxy command.

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/e2e/ssh_job.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

class SshTunnelTest : public SshJobOverEach {
 protected:
  void SetUp() override {
    SshJobOverEach::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  }
  void WriteConfig(const std::string& proxy_command) {
    std::ofstream(hosts().client_home() / ".ssh" / "config")
        << "Host behind\n  HostName " << hosts().address(1) << "\n  ProxyCommand " << proxy_command
        << "\n";
  }
  // "behind" is h1, reached through a program that asks nothing of an sshd.
  void WriteProxy() {
    const std::filesystem::path proxy = folder() / "proxy";
    const std::string script = "#!/bin/bash\nexec 3<>/dev/tcp/$1/$2\ncat <&3 &\nexec cat >&3\n";
    ASSERT_TRUE(WriteFileAtomically(proxy, script, 0755).ok());
    WriteConfig(proxy.string() + " %h %p");
    WriteHostfile("behind slots=1 workdir=/\n");
  }
  // h1 answers nobody but h0, through which "behind" is reached.
  void HideBehindTheFirst() {
    hosts().Silence(1);
    WriteConfig("ssh -F none -i " + hosts().identity().string() +
                " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -W %h:%p " +
                hosts().address(0));
    WriteHostfile(hosts().HostfileLine(0, 1) + "\nbehind slots=1 workdir=/\n");
  }
};

INSTANTIATE_TEST_SUITE_P(Launchers, SshTunnelTest, Launchers(), LauncherName);

TEST_P(SshTunnelTest, AHostReachedThroughAnotherTakesPart) {
  HideBehindTheFirst();
  const ProgramResult result = Run("echo rank $RANK of $WORLD_SIZE, $MASTER_ADDR; hostname");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1@behind: rank 1 of 2, " + hosts().address(0) + "\n"));
  EXPECT_THAT(result.out, HasSubstr("1@behind: h1\n"));
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

TEST_P(SshTunnelTest, ItsStatusArrivesAndStopsTheOthers) {
  HideBehindTheFirst();
  const ProgramResult result =
      Run({"--grace_seconds", "5"}, "[ $RANK = 1 ] && exit 7; exec sleep 600");
  EXPECT_EQ(result.status, 7) << result.err;
  EXPECT_EQ(Verdict()["host"], "behind");
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

TEST_P(SshTunnelTest, EveryByteComesThrough) {
  HideBehindTheFirst();
  const ProgramResult result = Run({"--errors_only"}, "[ $RANK = 0 ] || seq 1 3000000");
  ASSERT_EQ(result.status, 0) << result.err;
  std::ostringstream expected;
  for (int i = 1; i <= 3'000'000; ++i) expected << i << '\n';
  EXPECT_TRUE(*ReadFile(run() / "logs/0/rank-00001.out") == expected.str());
}

TEST_P(SshTunnelTest, ADaemonKilledBeyondTheTunnelIsLostAfterItsLease) {
  HideBehindTheFirst();
  Program dsrun(Command({"--lease_seconds", "4"}, "echo the rank is up; exec sleep 600"),
                {.environment = hosts().Environment(), .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("the rank is up")) << dsrun.err();
  OnHost(1, "kill -9 $(pgrep -x dsrund-.*)");
  EXPECT_EQ(dsrun.Wait().status, 4) << dsrun.err();
  EXPECT_EQ(Verdict()["host"], "behind");
  EXPECT_THAT(Verdict()["cause"].get<std::string>(), HasSubstr("_lost"));
}

TEST_P(SshTunnelTest, ABrokenSshConnectionIsALostDaemon) {
  HideBehindTheFirst();
  Program dsrun(Command({"--lease_seconds", "600"}, "echo the rank is up; exec sleep 600"),
                {.environment = hosts().Environment(), .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("the rank is up")) << dsrun.err();
  OnHost(1, "kill -9 $(pgrep -f 'sshd: root')");
  EXPECT_EQ(dsrun.Wait().status, 4) << dsrun.err();
  EXPECT_EQ(Verdict()["host"], "behind");
  EXPECT_EQ(Verdict()["cause"], "daemon_lost");
}

TEST_P(SshTunnelTest, AnotherAgentOpensTheTunnelAgain) {
  HideBehindTheFirst();
  ExpectTakeovers("behind");
}

TEST_P(SshTunnelTest, AHostThatAnotherAgentCannotReachIsLost) {
  HideBehindTheFirst();
  Program dsrun(Command({"--lease_seconds", "4"}, "echo the rank is up; exec sleep 600"),
                {.environment = hosts().Environment(), .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("the rank is up")) << dsrun.err();
  hosts().CutLink(1);
  ASSERT_EQ(::kill(AgentPid(), SIGKILL), 0);
  EXPECT_EQ(dsrun.Wait().status, 4) << dsrun.err();
  EXPECT_EQ(Verdict()["host"], "behind");
}

// One that would wait for ever for the end of its input, or of the connection.
TEST_P(SshTunnelTest, AnyProgramMayBeTheProxy) {
  WriteProxy();
  const ProgramResult result = Run("echo $RANK; hostname");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@behind: h1\n"));
  ExpectNothingLeft(1);
}

TEST_P(SshTunnelTest, AProxyThatFailsIsQuoted) {
  WriteConfig("sh -c 'echo first >&2; echo no way through >&2; exit 1'");
  WriteHostfile("behind slots=1 workdir=/\n");
  ExpectRefused({"--ssh_timeout", "3"}, {"behind", "handshake", "ProxyCommand or ProxyJump",
                                         "the proxy command printed: no way through"});
}

class NoForwardingTest : public SshTunnelTest {
 protected:
  void SetUp() override {
    options_.sshd_config = {"AllowTcpForwarding no"};
    SshTunnelTest::SetUp();
  }
};

INSTANTIATE_TEST_SUITE_P(Launchers, NoForwardingTest, Launchers(), LauncherName);

TEST_P(NoForwardingTest, AServerThatForwardsNothingIsNamed) {
  WriteProxy();
  ExpectRefused({}, {"behind", "port", "AllowTcpForwarding"});
}

}  // namespace
}  // namespace ds::testing
