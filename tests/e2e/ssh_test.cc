// Jobs over SSH: what the ranks of several hosts get, how their end arrives, what is left on the
// hosts.

#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/base/files.h"
#include "tests/e2e/ssh_job.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using SshTest = SshJobOverEach;
using SshConfigTest = SshJob;

INSTANTIATE_TEST_SUITE_P(Launchers, SshTest, Launchers(), LauncherName);

TEST_P(SshTest, RanksOfAllHostsKnowTheirPlaceAndMeetAtTheFirstHost) {
  WriteHostfile(2);
  const ProgramResult result =
      Run("echo rank=$RANK local=$LOCAL_RANK node=$NODE_RANK world=$WORLD_SIZE addr=$MASTER_ADDR; "
          "[ $MASTER_PORT -gt 0 ] && echo $RANK: $(hostname) $(pwd) $HOME");
  ASSERT_EQ(result.status, 0) << result.err;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string r = std::to_string(rank);
    const std::string host = "h" + std::to_string(rank / 2);
    EXPECT_THAT(result.out,
                HasSubstr(r + "@" + host + ": rank=" + r + " local=" + std::to_string(rank % 2) +
                          " node=" + std::to_string(rank / 2) +
                          " world=4 addr=" + hosts().address(0) + "\n"));
    const std::string name = hosts().namespaces() ? host : OnHost(0, "printf $(hostname)");
    EXPECT_THAT(result.out,
                HasSubstr(": " + r + ": " + name + " / " + hosts().home(rank / 2) + "\n"));
  }
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

TEST_P(SshTest, TheStatusOfARankOnAnotherHostArrivesAndItsPeersStop) {
  WriteHostfile(2);
  const ProgramResult result =
      Run({"--grace_seconds", "5"}, "[ $RANK = 3 ] && exit 7; exec sleep 600");
  EXPECT_EQ(result.status, 7) << result.err;
  EXPECT_EQ(Verdict()["cause"], "exit_code");
  EXPECT_EQ(Verdict()["rank"], 3);
  EXPECT_EQ(Verdict()["host"], "h1");
  for (int i = 0; i < 2; ++i) ExpectNothingLeft(i);
}

// Over SSH's daemon and TLS, as from a pipe on this host.
TEST_P(SshTest, StandardInputReachesRankZeroOnAnotherHost) {
  WriteHostfile(1);
  std::string sent;
  for (int i = 0; i < 100'000; ++i) sent += "line " + std::to_string(i) + '\0';
  const ProgramResult result = RunProgram(Command({"-q"}, "exec cat"),
                                          {.environment = hosts().Environment(), .input = sent});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(ReadFile(run() / "logs" / "0" / "rank-00000.out").value() == sent);
  EXPECT_EQ(ReadFile(run() / "logs" / "0" / "rank-00001.out").value(), "");
}

// Keys are in its memory. The ranks' own limits are theirs.
TEST_P(SshTest, AnAgentThatIsAbortedLeavesNoCoreFile) {
  WriteHostfile(1);
  const std::filesystem::path cores = folder() / "core_files";
  std::filesystem::create_directory(cores);
  const std::string here = "cd " + cores.string() + " && ulimit -c unlimited && ";
  static_cast<void>(RunProgram({"/bin/sh", "-c", here + "kill -ABRT $$"}));
  if (std::filesystem::is_empty(cores)) {
    return SkipWithout("core_files",
                       "core files of this machine do not go to the working directory");
  }
  for (const auto& core : std::filesystem::directory_iterator(cores)) {
    std::filesystem::remove(core.path());
  }
  std::vector<std::string> command = {"/bin/sh", "-c", here + "exec \"$@\"", "sh"};
  for (const std::string& word :
       Command({"--lease_seconds", "4"}, "echo core $(ulimit -c) $RANK; exec sleep 600")) {
    command.push_back(word);
  }
  Program dsrun(command, {.environment = hosts().Environment()});
  ASSERT_TRUE(dsrun.WaitForOutput("0@h0: core ")) << dsrun.err();
  const pid_t agent = AgentPid();
  ASSERT_GT(agent, 0);
  ::kill(agent, SIGABRT);
  ASSERT_TRUE(dsrun.WaitForOutput("ended by signal 6; another one has taken over")) << dsrun.err();
  dsrun.Signal(SIGINT);
  EXPECT_EQ(dsrun.Wait().status, 130) << dsrun.err();
  EXPECT_TRUE(std::filesystem::is_empty(cores));
}

TEST_P(SshTest, TheDaemonIsSentOnceAndFoundAgainByItsContent) {
  WriteHostfile(1);
  ASSERT_EQ(Run("true").status, 0);
  const std::string list =
      "cd " + hosts().home(0) + "/.cache/dsrun && stat -c '%n %i %a' dsrund-* && stat -c %a .";
  const std::string first = OnHost(0, list);
  EXPECT_THAT(first, HasSubstr(" 700\n700\n"));
  ASSERT_EQ(Run("true").status, 0);
  EXPECT_EQ(OnHost(0, list), first) << "the same file, not another one";
  // Half a file, as a crash of the host may leave it, is no daemon.
  OnHost(0, "cd " + hosts().home(0) + "/.cache/dsrun && truncate -s 1000 dsrund-*");
  EXPECT_EQ(Run("true").status, 0);
}

TEST_P(SshTest, ThisMachineAndOthersInOneJob) {
  WriteHostfile("localhost slots=1 workdir=/\n" + hosts().HostfileLine(1, 1) + "\n");
  environment_ = {"ONLY_HERE=yes"};
  const ProgramResult result = Run({"-x", "MARK=a b"}, "echo $MASTER_ADDR/$ONLY_HERE/$MARK");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("0@localhost: " + hosts().hub_address() + "/yes/a b\n"),
                                HasSubstr("1@h1: " + hosts().hub_address() + "//a b\n")));
  ExpectNothingLeft(1);
}

TEST_P(SshTest, AKnownHostIsRecognisedAndNotAcceptedAnew) {
  options_.count = 1;
  WriteHostfile(1);
  std::ofstream(hosts().client_home() / ".ssh" / "known_hosts") << hosts().KnownHostsLine(0);
  EXPECT_EQ(Run("true").status, 0);
  EXPECT_FALSE(std::filesystem::exists(run() / "known_hosts"));
}

TEST_F(SshConfigTest, TheSshConfigurationSaysHowToReachAHost) {
  options_.count = 1;
  options_.namespaces = false;  // a port that is not SSH's own
  const std::filesystem::path folder = hosts().client_home() / ".ssh";
  // As OpenSSH reads it: from beside the configuration, not from where dsrun was started.
  std::filesystem::create_directories(folder / "more" / "a folder");
  std::ofstream(folder / "config")
      << "StrictHostKeyChecking no\nInclude more/*\nHost training\n  Port " << hosts().port(0)
      << "\n";
  std::ofstream(folder / "more" / "clusters") << "include = names\n";
  std::ofstream(folder / "names") << "Host training\n  HostName " << hosts().address(0) << "\n";
  WriteHostfile("training slots=1 workdir=/\n");
  const ProgramResult result = Run("echo $RANK");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@training: 0\n"));
}

TEST_P(SshTest, AProxyCommandCarriesTheConnection) {
  options_.count = 1;
  std::ofstream(hosts().client_home() / ".ssh" / "config")
      << "Host behind\n  ProxyCommand ssh -F none -i " << hosts().identity().string()
      << " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p " << hosts().port(0)
      << " -W " << hosts().address(0) << ":" << hosts().port(0) << " " << hosts().address(0)
      << "\n";
  WriteHostfile("behind slots=1 workdir=/\n");
  const ProgramResult result = Run("echo $RANK");
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_P(SshTest, ExportsOnlyDeepSpeedsVariablesToOtherHosts) {
  options_.count = 1;
  WriteHostfile(1);
  environment_ = {"NCCL_DEBUG=a  'b' $HOME", "MLFLOW_URI=x", "UNRELATED=1", "PYTHONPATH=/lib/mine"};
  const ProgramResult result =
      Run({"-x", "LR=3e-4"},
          "echo \"nccl=$NCCL_DEBUG\"; echo mlflow=$MLFLOW_URI lr=$LR unrelated=${UNRELATED-none}; "
          "echo python=$PYTHONPATH");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nccl=a  'b' $HOME\n"));
  EXPECT_THAT(result.out, HasSubstr("mlflow=x lr=3e-4 unrelated=none\n"));
  EXPECT_THAT(result.out, HasSubstr("python=/:/lib/mine\n"));
}

TEST_P(SshTest, TheAgentsKeysLetUsInWithoutAnyFile) {
  options_.count = 1;
  WriteHostfile(1);
  std::vector<std::string> command = {"ssh-agent", "sh", "-c",
                                      "ssh-add -q \"$0\" && rm \"$0\" \"$0.pub\" && exec \"$@\"",
                                      hosts().identity().string()};
  for (const std::string& word : Command({}, "echo rank $RANK")) command.push_back(word);
  const ProgramResult result =
      RunProgram(command, {.environment = hosts().Environment(), .working_directory = folder()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 0\n"));
}

// A dsrund that nobody has used for a month goes, which its content proves to be one: its name has
// the hash. Names alone prove nothing.
TEST_P(SshTest, RemovesOldCacheEntriesWhenPlacingAFile) {
  options_.count = 1;
  WriteHostfile(1);
  const std::string enter = "cd " + hosts().home(0) + "/.cache/dsrun && ";
  OnHost(0, "mkdir -p " + hosts().home(0) + "/.cache/dsrun");
  std::string name = OnHost(0, enter +
                                   "echo forgotten >f && n=dsrund-$(sha256sum <f | cut -c1-16) && "
                                   "mv f $n && touch -d '40 days ago' $n && echo $n");
  name.pop_back();
  OnHost(0, enter +
                "touch -d '40 days ago' dsrund-old dsrund-0123456789abcdef keep-this dsrund-1.job");
  ASSERT_EQ(Run("true").status, 0);
  EXPECT_EQ(
      OnHost(0, enter + "ls " + name +
                    " 2>/dev/null; ls dsrund-0123456789abcdef dsrund-1.job dsrund-old keep-this"),
      "dsrund-0123456789abcdef\ndsrund-1.job\ndsrund-old\nkeep-this\n");
}

// A shell called dsrank, which says under which path it was started.
TEST_P(SshTest, DsrankIsAtTheHostsPathOrAtThisHostsOrInPath) {
  namespace fs = std::filesystem;
  options_.count = 1;
  options_.sshd_config = {"SetEnv DSRUN_RANK=/root/own/dsrank PATH=/root/path:/usr/bin:/bin"};
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  OnHost(0, "cd /root && mkdir own path && cp /bin/sh own/dsrank && cp /bin/sh path/dsrank");
  // Beside the programs of the build, which every host sees; a temporary folder is each host's own.
  const fs::path here = fs::path(DS_BIN_DIR) / ("of-test-" + std::to_string(::getpid())) / "bin";
  fs::create_directories(here);
  for (const char* program : {"dsrun", "dsrund"}) {
    fs::copy_file(fs::path(DS_BIN_DIR) / program, here / program);
  }
  fs::copy_file("/bin/sh", here / "dsrank");
  fs::create_directory_symlink(fs::path(DS_BIN_DIR).parent_path() / "share",
                               here.parent_path() / "share");
  const fs::path data = folder() / "data.txt";
  ASSERT_TRUE(WriteFileAtomically(data, std::string(100'000, 'a')).ok());
  const auto train = [&] {
    std::vector<std::string> command = Command({}, "");
    command.resize(command.size() - 4);  // without the program
    command[0] = here / "dsrun";
    command.insert(command.end(), {"train", "--steps", "1", "--data", data.string()});
    return RunProgram(command,
                      {.environment = hosts().Environment(), .working_directory = folder()})
        .err;
  };
  EXPECT_THAT(train(), HasSubstr("/root/own/dsrank: 0: "));
  OnHost(0, "rm /root/own/dsrank");
  EXPECT_THAT(train(), HasSubstr((here / "dsrank").string() + ": 0: "));
  fs::remove(here / "dsrank");
  EXPECT_THAT(train(), HasSubstr("/root/path/dsrank: 0: "));
  fs::remove_all(here.parent_path());
}

TEST_P(SshTest, TheDaemonAndItsRanksLiveInsideTheWrapper) {
  options_.count = 1;
  WriteHostfile(1, "exec=\"env WRAPPED=yes\"");
  const ProgramResult result = Run("echo wrapped=$WRAPPED");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("wrapped=yes\n"));
}

TEST_P(SshTest, AWrapperWithAFileSystemOfItsOwnGetsTheDaemonToo) {
  options_.count = 1;
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  // A "container": a process with mounts of its own, entered by nsenter.
  const Program container(
      hosts().Inside(0, {"unshare", "--mount", "sh", "-c",
                         "mount -t tmpfs tmpfs /root && touch /root/inside && echo $$ && "
                         "exec sleep 600"}));
  ASSERT_TRUE(const_cast<Program&>(container).WaitForOutput("\n"));
  WriteHostfile(1, "exec=\"nsenter -m -t " + std::to_string(std::stoi(container.out())) + "\"");
  const ProgramResult result = Run("ls /root");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@h0: inside\n"));
  EXPECT_EQ(OnHost(0, "ls -A /root"), "") << "nothing is put beside the container";
}

// Eight entries that are one machine: they share the home as well, as hosts of a cluster often do.
TEST_P(SshTest, AServerThatTakesFewLoginsAtOnceGetsThemAll) {
  options_.count = 1;
  options_.sshd_config = {"MaxStartups 2"};
  std::string text;
  for (int i = 0; i < 8; ++i) {
    const std::string line = hosts().HostfileLine(0, 1);
    text += "n" + std::to_string(i) + line.substr(line.find(' ')) + "\n";
  }
  WriteHostfile(text);
  const ProgramResult result = Run({"--ssh_timeout", "60", "--share_machine"}, "echo rank $RANK");
  EXPECT_EQ(result.status, 0) << result.err;
  for (int i = 0; i < 8; ++i) {
    EXPECT_THAT(result.out, HasSubstr("rank " + std::to_string(i) + "\n"));
  }
  ExpectNothingLeft(0);
}

TEST_P(SshTest, CtrlCWhileAHostIsBeingReachedEndsItAtOnce) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  hosts().Silence(1);
  std::vector<std::string> environment = hosts().Environment();
  Program dsrun(Command({"--ssh_timeout", "600"}, "true"),
                {.environment = environment, .working_directory = folder()});
  ASSERT_TRUE(dsrun.WaitForOutput("1 of 2 hosts ready; waiting for h1"));
  dsrun.Signal(SIGINT);
  EXPECT_EQ(dsrun.Wait().status, 130);
  EXPECT_EQ(Verdict()["cause"], "user_stop");
  ExpectNothingLeft(0);
}

}  // namespace
}  // namespace ds::testing
