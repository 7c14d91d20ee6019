// What is executed on a host is what was sent, whatever others do to the names that lead to it.

#include <gmock/gmock.h>

#include <csignal>
#include <string>

#include "tests/e2e/ssh_job.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCache[] = "/root/.cache/dsrun";

class SshPlacingTest : public SshJobOverEach {
 protected:
  void SetUp() override {
    SshJobOverEach::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    options_.count = 1;
    // Where the tests put programs that act in the middle of ours.
    options_.sshd_config = {"SetEnv PATH=/run/host/bin:/usr/bin:/bin"};
    if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
    WriteHostfile(1);
    const std::string sum = RunProgram({"sha256sum", DS_BIN_DIR "/dsrund"}).out;
    name_ = "dsrund-" + sum.substr(0, 16);
    // What an attacker would like to see executed.
    OnHost(
        0,
        "printf '#!/bin/sh\\ntouch /run/host/owned; id -u >>/run/host/owned\\n' >/run/host/evil && "
        "chmod 755 /run/host/evil && mkdir -m 755 /run/host/bin");
    Wrap("openssl", "exit 1");
  }
  void ExpectNothingEvilRan() { EXPECT_EQ(OnHost(0, "cat /run/host/owned 2>&1 || true"), kNoFile); }
  // A program in front of the real one of that name.
  void Wrap(const std::string& program, const std::string& script) {
    OnHost(0, "cat >/run/host/bin/" + program + " <<'END'\n#!/bin/sh\n" + script +
                  "\nEND\nchmod 755 /run/host/bin/" + program);
  }

  static constexpr char kNoFile[] = "cat: /run/host/owned: No such file or directory\n";
  static constexpr char kAttacker[] = "setpriv --reuid 65534 --regid 65534 --clear-groups ";
  std::string name_;
};

INSTANTIATE_TEST_SUITE_P(Launchers, SshPlacingTest, Launchers(), LauncherName);

TEST_P(SshPlacingTest, AFolderThatAnotherUserHasPreparedIsNotUsed) {
  OnHost(0, "mkdir -m 755 /run/host/secrets && mount -o remount,ro /root");
  OnHost(0, std::string(kAttacker) + "ln -s /run/host/secrets /tmp/dsrun-0");
  OnHost(0, "cp /run/host/evil /run/host/secrets/" + name_ +
                " && truncate -s $(stat -c %s '" DS_BIN_DIR "/dsrund') /run/host/secrets/" + name_);
  const ProgramResult result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  ExpectNothingEvilRan();
  EXPECT_EQ(OnHost(0, "stat -c %a /run/host/secrets && ls -d /tmp/dsrun-*"), "755\n/tmp/dsrun-0\n");
}

// Nothing but the sticky bit of /tmp, which this one lacks, protects names in it.
TEST_P(SshPlacingTest, AFolderThatIsExchangedAfterTheCheckIsNotUsed) {
  OnHost(0, "mount -o remount,ro /root && chmod 777 /tmp");
  const std::string exchange =
      std::string("for d in /tmp/dsrun-once-*; do ") + kAttacker +
      "sh -c 'mv $0 /tmp/away && mkdir -m 755 $0 && cp /run/host/evil $0/" + name_ + "' $d; done";
  // The first sum is taken of what has arrived, the second of what is about to be started.
  Wrap("sha256sum", "/usr/bin/sha256sum; [ -e /tmp/away ] || { " + exchange + "; }");
  ExpectRefused({}, {"  h0    placing dsrund  ", "its folder is not this user's"});
  ExpectNothingEvilRan();
  OnHost(0, "rm -rf /tmp/away /tmp/dsrun-once-*");
  Wrap("sha256sum", "/usr/bin/sha256sum; if [ -e /run/host/second ]; then " + exchange +
                        "; fi; touch /run/host/second");
  EXPECT_EQ(Run("echo started").status, 0);
  EXPECT_EQ(OnHost(0, "ls -d /tmp/away"), "/tmp/away\n") << "it was exchanged";
  ExpectNothingEvilRan();
}

// The user's ~/.cache is a link by way of a folder that others may write to.
TEST_P(SshPlacingTest, ALinkThatIsSwappedAfterTheCheckIsNotFollowed) {
  const std::string swap = std::string(kAttacker) + "ln -sfn /tmp/his /tmp/link";
  OnHost(0, "chmod 777 /tmp && mkdir -m 700 /root/real && ln -s /tmp/link /root/.cache");
  OnHost(0, std::string(kAttacker) +
                "sh -c 'ln -s /root/real /tmp/link && mkdir -p /tmp/his/dsrun && "
                "cp /run/host/evil /tmp/his/dsrun/" +
                name_ + "'");
  // The first sum is taken of what has arrived, the second of what is about to be started.
  Wrap("sha256sum",
       "/usr/bin/sha256sum; [ ! -e /run/host/second ] || " + swap + "; touch /run/host/second");
  ProgramResult result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(OnHost(0, "readlink /tmp/link"), "/tmp/his\n") << "it was swapped";
  ExpectNothingEvilRan();
  // From now on the name leads to the attacker's folder.
  result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("belongs to another user; dsrund was put to /tmp/dsrun-once-"));
  ExpectNothingEvilRan();
}

// Homes are shared: another host, or a program that copies files, puts something else under the
// name.
TEST_P(SshPlacingTest, AFileThatIsReplacedAfterTheCheckIsNotExecuted) {
  ASSERT_EQ(Run("true").status, 0);
  const std::string name = std::string(kCache) + "/" + name_;
  Wrap("sha256sum", "/usr/bin/sha256sum; cp /run/host/evil /root/evil && mv /root/evil " + name);
  const ProgramResult result = Run("cat /proc/$PPID/comm; tr '\\0' ' ' </proc/$PPID/cmdline");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(OnHost(0, "cat " + name), OnHost(0, "cat /run/host/evil")) << "it was replaced";
  ExpectNothingEvilRan();
  // What lists processes shows a name that says what it is.
  EXPECT_THAT(result.out, HasSubstr("0@h0: " + name_.substr(0, 15) + "\n"));
  EXPECT_THAT(result.out, HasSubstr("0@h0: " + name_.substr(0, 15) + " --listen "));
}

TEST_P(SshPlacingTest, OtherContentUnderItsNameIsReplaced) {
  ASSERT_EQ(Run("true").status, 0);
  const std::string sum = "sha256sum <" + std::string(kCache) + "/" + name_;
  const std::string right = OnHost(0, sum);
  OnHost(0, std::string("cd ") + kCache + " && dd if=/run/host/evil of=" + name_ + " conv=notrunc");
  ASSERT_NE(OnHost(0, sum), right);
  const ProgramResult result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("its content differs from what was sent; it was sent anew"));
  EXPECT_EQ(OnHost(0, sum), right);
  ExpectNothingEvilRan();
  EXPECT_THAT(Run("true").err, Not(HasSubstr("sent anew")));
  ExpectNothingLeft(0);
}

TEST_P(SshPlacingTest, ALinkUnderItsNameIsReplaced) {
  OnHost(0, std::string("mkdir -p -m 700 ") + kCache + " && ln -s /run/host/evil " + kCache + "/" +
                name_);
  const ProgramResult result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("it is a symbolic link; it was sent anew"));
  ExpectNothingEvilRan();
  ExpectNothingLeft(0);
}

TEST_P(SshPlacingTest, AFolderUnderItsNameIsReplaced) {
  OnHost(0, std::string("mkdir -p -m 700 ") + kCache + "/" + name_);
  const ProgramResult result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  ExpectNothingLeft(0);
}

// As one that goes between the look at it and its opening. The file under this mount has root's
// permission to be read, and no reader.
TEST_P(SshPlacingTest, AFileThatCannotBeOpenedIsSentAnew) {
  ASSERT_EQ(Run("true").status, 0);
  OnHost(0, std::string("mount --bind \"$(find /sys -type f -perm 0200 | head -n 1)\" ") + kCache +
                "/" + name_);
  const ProgramResult result = Run("echo started");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("started"));
  EXPECT_THAT(result.err, HasSubstr("dsrund was put to /tmp/dsrun-once-")) << "not over the mount";
  ExpectNothingEvilRan();
}

// Hosts share homes: what another host has placed meanwhile may be running there.
TEST_P(SshPlacingTest, KeepsAFileThatAnotherHostHasJustPlaced) {
  const std::string final_name = std::string(kCache) + "/" + name_;
  Wrap("df", "[ -e " + final_name + " ] || { cp '" DS_BIN_DIR "/dsrund' " + final_name +
                 "; chmod 700 " + final_name + "; stat -c %i " + final_name +
                 " >/run/host/inode; }; exec /bin/df \"$@\"");
  EXPECT_EQ(Run("true").status, 0);
  const std::string inode = OnHost(0, "cat /run/host/inode");
  EXPECT_NE(inode, "");
  EXPECT_EQ(OnHost(0, "stat -c %i " + final_name), inode);
  ExpectNothingLeft(0);
}

// The host's end of the connection dies in the middle of the transfer. What has arrived stays in a
// folder with the mark of a process that has ended, and goes with the first placing a day later.
TEST_P(SshPlacingTest, RemovesLeftoversOfABrokenConnectionADayLater) {
  const std::string left = std::string("ls -d ") + kCache + "/dsrun-once-*";
  Wrap("cat", "[ $(head -c 1000000 | wc -c) = 1000000 ] && kill -9 $PPID $(pgrep -f 'sshd: root')");
  ExpectRefused({}, {"1 of 1 host cannot be used:", "  h0    ", "while running a command"});
  OnHost(0, "rm /run/host/bin/cat");
  EXPECT_EQ(Run("true").status, 0);
  ASSERT_NE(OnHost(0, left), "") << "a start may still need it";
  OnHost(0, std::string("rm ") + kCache + "/" + name_ + " && touch -d '2 days ago' $(" + left +
                ")/.dsrun-owner");
  EXPECT_EQ(Run("true").status, 0);
  EXPECT_EQ(OnHost(0, left), "");
  ExpectNothingLeft(0);
}

TEST_P(SshPlacingTest, KeepsForeignFilesWithASimilarName) {
  const std::string mine = std::string(kCache) + "/dsrun-once-results /tmp/dsrun-once-results " +
                           kCache + "/dsrund-" + std::string(16, '0');
  OnHost(0, std::string("mkdir -p -m 700 ") + kCache + " && for d in " + mine +
                "; do mkdir $d; echo a week >$d/dsrund-notes; touch -d '60 days ago' $d "
                "$d/dsrund-notes; done; echo notes >" +
                kCache + "/dsrund-my-own-notes-00; touch -d '60 days ago' " + kCache + "/dsrund-*");
  EXPECT_EQ(Run("true").status, 0);
  OnHost(0, std::string("rm ") + kCache + "/" + name_ + " && mount -o remount,ro /root");
  EXPECT_EQ(Run("true").status, 0);
  EXPECT_EQ(OnHost(0, "cd / && for d in " + mine + "; do cat $d/dsrund-notes; done"),
            "a week\na week\na week\n");
  EXPECT_EQ(OnHost(0, std::string("cat ") + kCache + "/dsrund-my-own-notes-00"), "notes\n");
}

// One that nobody has started for a month: the content has the hash that the name says.
TEST_P(SshPlacingTest, AForgottenVersionGoes) {
  OnHost(0, std::string("mkdir -p -m 700 ") + kCache + " && cd " + kCache +
                " && echo old >old && n=$(sha256sum <old | cut -c1-16) && mv old dsrund-$n && "
                "touch -d '60 days ago' dsrund-$n");
  EXPECT_EQ(Run("true").status, 0);
  EXPECT_EQ(OnHost(0, std::string("ls ") + kCache), name_ + "\n");
}

// Nobody reads what is sent, and then nothing is heard from the host any more.
TEST_P(SshPlacingTest, ASignalEndsATransferThatIsStuck) {
  OnHost(0, "mkfifo /run/host/stuck");
  Wrap("cat",
       "[ $(head -c 1000000 | wc -c) = 1000000 ] && echo >/run/host/stuck && exec sleep 600");
  for (const int signal : {SIGTERM, SIGINT}) {
    Program dsrun(Command({}, "true"),
                  {.environment = hosts().Environment(), .working_directory = folder()});
    OnHost(0, "head -n 1 /run/host/stuck");
    if (signal == SIGINT) hosts().CutLink(0);
    dsrun.Signal(signal);
    EXPECT_EQ(dsrun.Wait().status, 128 + signal);
    EXPECT_EQ(Verdict()["cause"], "user_stop");
  }
}

// The daemon itself says that it is in use (daemon/network/network_daemon.h).
TEST_P(SshPlacingTest, AStartIsAUse) {
  ASSERT_EQ(Run("true").status, 0);
  OnHost(0, std::string("touch -d '20 days ago' ") + kCache + "/" + name_);
  ASSERT_EQ(Run("true").status, 0);
  EXPECT_EQ(OnHost(0, std::string("find ") + kCache + " -type f -mtime +1"), "");
}

}  // namespace
}  // namespace ds::testing
