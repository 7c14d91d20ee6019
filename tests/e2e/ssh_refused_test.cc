// Hosts that cannot be used over SSH: each way to fail is told from the others, with what to do.

#include <gmock/gmock.h>

#include <fstream>

#include "tests/e2e/ssh_job.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

using SshRefusedTest = SshJob;

class SshRefusedOverEachTest : public SshJobOverEach {
 protected:
  void NeedNamespaces() {
    if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  }
};

INSTANTIATE_TEST_SUITE_P(Launchers, SshRefusedOverEachTest, Launchers(), LauncherName);

TEST_F(SshRefusedTest, AllFailuresOfAllHostsInOneTable) {
  WriteHostfile(hosts().HostfileLine(0, 1) +
                "\nno-such-host.invalid slots=1\nshut slots=1 address=" + hosts().address(1) +
                " port=1\n");
  ExpectRefused(
      {"--ssh_timeout", "3"},
      {"2 of 3 hosts cannot be used:", "  no-such-host.invalid  name ",
       "  shut                  refused  " + hosts().address(1) + " port 1: Connection refused",
       "-> is sshd running there?"});
  ExpectNothingLeft(0);
}

TEST_P(SshRefusedOverEachTest, ASilentHostIsATimeout) {
  NeedNamespaces();
  if (IsSkipped() || HasFatalFailure()) return;
  options_.count = 2;
  WriteHostfile(1);
  hosts().Silence(0);
  ExpectRefused({"--ssh_timeout", "8"}, {"1 of 2 hosts cannot be used:", "  h0    timeout  "});
}

TEST_F(SshRefusedTest, AChangedHostKeyIsRefused) {
  WriteHostfile(1);
  const std::string line = hosts().KnownHostsLine(0);
  const std::string others = hosts().KnownHostsLine(1);
  std::ofstream(hosts().client_home() / ".ssh" / "known_hosts")
      << line.substr(0, line.find(' ')) << others.substr(others.find(' '));
  std::ofstream(hosts().client_home() / ".ssh" / "config") << "StrictHostKeyChecking no\n";
  ExpectRefused({}, {"1 of 2 hosts cannot be used:", "  h0    host key  ", "holds another one",
                     "ssh-keygen -f"});
}

TEST_F(SshRefusedTest, AHostThatRefusesLoginsListsItsMethods) {
  options_.count = 1;
  WriteHostfile(1);
  std::filesystem::remove(hosts().identity());
  std::filesystem::remove(hosts().identity().string() + ".pub");
  ExpectRefused({}, {"  h0    authentication  ", "it accepts public keys", "ssh-copy-id"});
  // A key that cannot be read is no missing one.
  std::filesystem::create_symlink(hosts().identity(), hosts().identity());
  ExpectRefused({}, {"  h0    authentication  ",
                     hosts().identity().string() + ": Too many levels of symbolic links"});
}

TEST_F(SshRefusedTest, AnUnknownIdentityIsRefusedAndAMissingOneIsReportedAtOnce) {
  options_.count = 1;
  const std::string stranger = (folder() / "stranger").string();
  RunProgram({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger});
  std::filesystem::rename(hosts().identity(), folder() / "away");
  WriteHostfile(1, "identity=" + stranger);
  ExpectRefused({}, {"  h0    authentication  ", stranger});
  WriteHostfile(1, "identity=/no/such/key");
  ExpectRefused({}, {"  h0    authentication  identity=/no/such/key: No such file"});
  // The right one, by name.
  WriteHostfile(1, "identity=" + (folder() / "away").string());
  EXPECT_EQ(Run("true").status, 0);
}

TEST_P(SshRefusedOverEachTest, APassphraseIsNeverAskedFor) {
  options_.count = 1;
  const std::string locked = (folder() / "locked").string();
  for (const char* format : {"PEM", "RFC4716"}) {
    std::filesystem::remove(locked);
    RunProgram({"ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", format, "-N", "secret", "-f",
                locked});
    std::filesystem::rename(locked, hosts().identity());
    std::filesystem::remove(hosts().identity().string() + ".pub");
    WriteHostfile(1, "identity=" + hosts().identity().string());
    ExpectRefused({}, {"  h0    authentication  "});
  }
}

// bash reads ~/.bashrc when sshd starts it, even for a command.
TEST_P(SshRefusedOverEachTest, WhatALoginShellPrintsIsSkippedWithOneWarning) {
  options_.count = 1;
  WriteHostfile(1);
  OnHost(0, "printf 'echo Welcome to the cluster\\nprintf \"dsrun-facts\\\\n{}\"\\n' >" +
                hosts().home(0) + "/.bashrc");
  if (OnHost(0, "getent passwd $(id -u)").find("bash") == std::string::npos) {
    return SkipWithout("bash", "the login shell here is not bash");
  }
  for (const char* state : {"dsrund is missing", "dsrund is there"}) {
    const ProgramResult result = Run("echo started");
    EXPECT_EQ(result.status, 0) << state << result.err;
    EXPECT_THAT(result.out, HasSubstr("started"));
    const std::string warning =
        "its login shell prints 'Welcome to the cluster' before the output of commands";
    const std::size_t at = result.err.find(warning);
    EXPECT_NE(at, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("Welcome", at + warning.size()), std::string::npos) << result.err;
  }
}

TEST_P(SshRefusedOverEachTest, ShowsTerminalOutputOfALoginShell) {
  options_.count = 1;
  WriteHostfile(1);
  OnHost(0, "echo \"printf '\\\\033]0;owned\\\\007\\\\033[2Kall is well\\\\n'\" >" +
                hosts().home(0) + "/.bashrc");
  if (OnHost(0, "getent passwd $(id -u)").find("bash") == std::string::npos) {
    return SkipWithout("bash", "the login shell here is not bash");
  }
  const ProgramResult result = Run("true");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("'\\x1b]0;owned\\x07\\x1b[2Kall is well'"));
  EXPECT_EQ(result.err.find_first_of("\x1b\x07"), std::string::npos) << result.err;
}

TEST_P(SshRefusedOverEachTest, AnUnwritableHomeIsPassedOverForTmp) {
  options_.count = 1;
  NeedNamespaces();
  if (IsSkipped() || HasFatalFailure()) return;
  OnHost(0, "mount -o remount,ro /root");
  WriteHostfile(1);
  const ProgramResult result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("Read-only file system; dsrund was put to /tmp/dsrun-once-"));
  EXPECT_THAT(result.err, HasSubstr("instead, for this job only"));
  EXPECT_EQ(OnHost(0, "find /tmp -maxdepth 1 -name 'dsrun-once-*'"), "");
}

TEST_P(SshRefusedOverEachTest, AHomeThatForbidsExecutionIsPassedOverForTmp) {
  options_.count = 1;
  NeedNamespaces();
  if (IsSkipped() || HasFatalFailure()) return;
  OnHost(0, "mount -o remount,noexec /root");
  WriteHostfile(1);
  const ProgramResult result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("/root/.cache/dsrun: its file system forbids execution "
                                    "(noexec); dsrund was put to /tmp/dsrun-once-"));
  OnHost(0, "mount -o remount,noexec /tmp");
  ExpectRefused(
      {}, {"  h0    placing dsrund  /root/.cache/dsrun: its file system forbids execution",
           "nor elsewhere: /tmp: its file system forbids execution", "its programs executable"});
  ExpectNothingLeft(0);
}

TEST_P(SshRefusedOverEachTest, ReportsNoSpaceAnywhere) {
  options_.count = 1;
  NeedNamespaces();
  if (IsSkipped() || HasFatalFailure()) return;
  OnHost(0, "mount -o remount,size=1m /root; mount -o remount,size=1m /tmp");
  WriteHostfile(1);
  ExpectRefused({}, {"  h0    placing dsrund  /root/.cache/dsrun: no space left",
                     "nor elsewhere: /tmp: no space left", "free space there"});
  ExpectNothingLeft(0);
}

TEST_P(SshRefusedOverEachTest, AWrapperThatDoesNotRunIsNamed) {
  options_.count = 1;
  WriteHostfile(1, "exec=\"docker-is-not-here exec -i training\"");
  ExpectRefused({}, {"  h0    starting dsrund  'docker-is-not-here exec -i training /bin/sh' ended",
                     "is the target of exec= running"});
}

TEST_P(SshRefusedOverEachTest, AnAccountWithoutAShellIsNoNoise) {
  options_.sshd_config = {"ForceCommand echo This account is not available; exit 1"};
  options_.count = 1;
  WriteHostfile(1);
  ExpectRefused(
      {}, {"  h0    ", "ran no command and printed: 'This account is", "user= in the hostfile"});
}

TEST_P(SshRefusedOverEachTest, ReportsAMissingFileForEachHost) {
  WriteHostfile(1, "workdir=/no/such");
  const ProgramResult result = Run("true");
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("2 of 2 hosts refuse the job:"));
  EXPECT_THAT(result.err, HasSubstr("host h0: /no/such: No such file or directory"));
  EXPECT_THAT(result.err, HasSubstr("host h1: /no/such: No such file or directory"));
}

TEST_F(SshRefusedTest, SaysWhyANameCannotBeThatOfAHost) {
  const std::string longest(300, 'a');
  WriteHostfile("knoten-\xc3\xa4 slots=1\na..b slots=1\n" + longest + " slots=1\n");
  ExpectRefused({},
                {"3 of 3 hosts cannot be used:", "is no name of a host: it has a letter that is",
                 "'a..b': Name or service not known",
                 "'" + longest + "' is no name of a host: it has more than 255 characters"});
}

TEST_F(SshRefusedTest, SomethingThatIsNoSshServer) {
  Program listener(
      hosts().Inside(0, {"python3", "-c",
                         "import socket; s = socket.create_server(('" + hosts().address(0) +
                             "', 0)); print(s.getsockname()[1], flush=True)\n"
                             "while 1: s.accept()[0].close()"}));
  ASSERT_TRUE(listener.WaitForOutput("\n"));
  WriteHostfile("h0 slots=1 address=" + hosts().address(0) + " port=" + listener.out());
  ExpectRefused({"--ssh_timeout", "2"}, {"  h0    handshake  ", "is it an SSH server?"});
}

}  // namespace
}  // namespace ds::testing
