// Calls of this machine that never return while hosts are started: an agent, a key file, a command
// of the SSH configuration. Each ends at the deadline, and at the first Ctrl-C.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>

#include "runtime/process/unix_socket.h"
#include "tests/e2e/ssh_job.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

class SshHangsTest : public SshJobOverEach {
 protected:
  void SetUp() override {
    SshJobOverEach::SetUp();
    if (IsSkipped()) return;
    options_.count = 1;
    hosts();
    ::sigemptyset(&lease_signal_);
    ::sigaddset(&lease_signal_, kLeaseSignal);
    ::pthread_sigmask(SIG_BLOCK, &lease_signal_, nullptr);
    const timespec now{};
    while (::sigtimedwait(&lease_signal_, nullptr, &now) > 0) {  // of an earlier test
    }
    ASSERT_EQ(::mkfifo(fifo().c_str(), 0600), 0);
  }
  std::string fifo() const { return (folder() / "fifo").string(); }
  std::filesystem::path Config() { return hosts().client_home() / ".ssh" / "config"; }

  // An agent that accepts connections and never answers.
  UniqueFd UseSilentAgent() {
    const std::string path = (folder() / "agent").string();
    environment_ = {"SSH_AUTH_SOCK=" + path};
    WriteHostfile(1);
    return ListenUnix(path).value();
  }
  // A key file that cannot be opened while the returned descriptor is: its lease makes others wait,
  // and announces them by a signal.
  UniqueFd UseSilentKey() {
    const std::filesystem::path key = folder() / "key";
    std::filesystem::copy(hosts().identity(), key);
    WriteHostfile(1, "identity=" + key.string());
    UniqueFd holder(::open(key.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_EQ(::fcntl(holder.get(), F_SETSIG, kLeaseSignal), 0);
    EXPECT_EQ(::fcntl(holder.get(), F_SETLEASE, F_WRLCK), 0);
    return holder;
  }
  std::string EndlessCommand() const { return "echo $$ >" + fifo() + "; exec sleep 1000"; }
  void UseEndlessMatch() {
    std::ofstream(Config()) << "Match exec \"" << EndlessCommand() << "\"\n  User nobody\n";
    WriteHostfile(1);
  }

  std::unique_ptr<Program> Start() {
    std::vector<std::string> environment = hosts().Environment();
    environment.insert(environment.end(), environment_.begin(), environment_.end());
    return std::make_unique<Program>(
        Command({"--ssh_timeout", "3600"}, "true"),
        ProgramOptions{.environment = environment, .working_directory = folder()});
  }
  void ExpectInterrupted(Program* dsrun, const std::string& activity) {
    dsrun->Signal(SIGINT);
    const ProgramResult result = dsrun->Wait();
    EXPECT_EQ(result.status, 128 + SIGINT);
    EXPECT_EQ(Verdict()["cause"], "user_stop");
    if (launcher_ == "libssh") {
      EXPECT_THAT(result.err, HasSubstr("host h0: it was still " + activity));
    }
  }
  void ExpectTimeout(const std::string& activity) {
    ExpectRefused({"--ssh_timeout", "2"},
                  {"  h0    timeout  ",
                   launcher_ == "libssh" ? "no end of " + activity : "no answer while "});
  }

  const int kLeaseSignal = SIGRTMIN;
  sigset_t lease_signal_{};
};

INSTANTIATE_TEST_SUITE_P(Launchers, SshHangsTest, Launchers(), LauncherName);

TEST_P(SshHangsTest, ASilentAgentEndsAtTheDeadline) {
  const UniqueFd agent = UseSilentAgent();
  ExpectTimeout("asking the SSH agent " + (folder() / "agent").string());
}

TEST_P(SshHangsTest, ASilentAgentEndsAtTheFirstSignal) {
  const UniqueFd agent = UseSilentAgent();
  const auto dsrun = Start();
  pollfd asked{agent.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&asked, 1, -1), 1);
  const UniqueFd connection(::accept4(agent.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::array<char, 4> request{};
  ASSERT_EQ(::read(connection.get(), request.data(), request.size()), 4);
  ExpectInterrupted(dsrun.get(), "asking the SSH agent " + (folder() / "agent").string());
}

TEST_P(SshHangsTest, AKeyFileThatHangsEndsAtTheDeadline) {
  const UniqueFd holder = UseSilentKey();
  ExpectTimeout("reading the key " + (folder() / "key").string());
}

TEST_P(SshHangsTest, AKeyFileThatHangsEndsAtTheFirstSignal) {
  const UniqueFd holder = UseSilentKey();
  const auto dsrun = Start();
  int signal = 0;
  ASSERT_EQ(::sigwait(&lease_signal_, &signal), 0);  // dsrun, or its ssh, opens the file
  ExpectInterrupted(dsrun.get(), "reading the key " + (folder() / "key").string());
}

TEST_P(SshHangsTest, AnEndlessCommandOfTheConfigurationEndsAtTheDeadline) {
  UseEndlessMatch();
  const UniqueFd reader(::open(fifo().c_str(), O_RDWR | O_CLOEXEC));
  ExpectTimeout("running '" + EndlessCommand() + "' for Match exec");
}

TEST_P(SshHangsTest, AnEndlessCommandOfTheConfigurationEndsAtTheFirstSignal) {
  UseEndlessMatch();
  const auto dsrun = Start();
  std::string pid;
  std::getline(std::ifstream(fifo()), pid);
  ASSERT_NE(pid, "");
  const UniqueFd command(static_cast<int>(::syscall(SYS_pidfd_open, std::stoi(pid), 0)));
  ASSERT_TRUE(command.valid());
  ExpectInterrupted(dsrun.get(), "running '" + EndlessCommand() + "' for Match exec");
  pollfd ended{command.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1) << "the command goes on";
}

}  // namespace
}  // namespace ds::testing
