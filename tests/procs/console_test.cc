// What dsrun shows, on a terminal and on a pipe that takes only so much at a time.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/terminal.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConsoleTest : public ::testing::Test {
 protected:
  std::vector<std::string> Command(int ranks, const std::string& script) const {
    return {DS_BIN_DIR "/dsrun",
            "--device",
            "cpu",
            "--num_gpus",
            std::to_string(ranks),
            "--run_dir",
            Path("run"),
            "--",
            "/bin/sh",
            "-c",
            script};
  }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string MakeFifo(const std::string& name) const {
    EXPECT_EQ(::mkfifo(Path(name).c_str(), 0600), 0);
    return Path(name);
  }

  TemporaryFolder folder_;
};

// Both bars are half drawn while both ranks wait.
TEST_F(ConsoleTest, EachRanksProgressBarIsALineOfATerminal) {
  const std::string go = MakeFifo("go");
  Terminal terminal;
  Program dsrun(
      Command(2, "printf ' 10%%\\r 20%%\\r 30%% of %s' $RANK; read word <" + go + "; echo , done"),
      {.environment = {"TERM=xterm"}, .output_fd = terminal.fd()});
  terminal.LeaveToProgram();
  EXPECT_TRUE(terminal.WaitFor("0@localhost:  30% of 0")) << dsrun.err();
  EXPECT_TRUE(terminal.WaitFor("1@localhost:  30% of 1")) << dsrun.err();
  EXPECT_THAT(terminal.shown(), HasSubstr("\x1b[K")) << "rows are redrawn";
  EXPECT_THAT(terminal.shown(), Not(HasSubstr("10%"))) << "what was drawn over";
  const UniqueFd fifo(::open(go.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::write(fifo.get(), "go\ngo\n", 6), 6);
  EXPECT_TRUE(terminal.WaitFor("0@localhost:  30% of 0, done\r\n")) << dsrun.err();
  EXPECT_TRUE(terminal.WaitFor("1@localhost:  30% of 1, done\r\n")) << dsrun.err();
  EXPECT_EQ(dsrun.Wait().status, 0) << dsrun.err();
}

TEST_F(ConsoleTest, APromptIsShownBeforeItIsAnswered) {
  Terminal terminal;
  Program dsrun(Command(1, "printf 'your name? '; read name; echo hello, $name"),
                {.environment = {"TERM=xterm"},
                 .input_fd = terminal.fd(),
                 .owns_terminal = true,
                 .output_fd = terminal.fd()});
  terminal.LeaveToProgram();
  ASSERT_TRUE(terminal.WaitFor("0@localhost: your name? ")) << dsrun.err();
  terminal.Type("Ada\n");
  EXPECT_TRUE(terminal.WaitFor("hello, Ada\r\n")) << dsrun.err();
  EXPECT_EQ(dsrun.Wait().status, 0) << dsrun.err();
}

// Whoever shares the pipe may have made it non-blocking; a write then takes what fits.
TEST_F(ConsoleTest, ANonBlockingStandardOutputGetsEveryLine) {
  constexpr int kLines = 200'000;
  const std::string done = MakeFifo("done");
  const UniqueFd finished(::open(done.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  ASSERT_EQ(::fcntl(in.get(), F_SETFL, O_NONBLOCK), 0);
  Program dsrun(Command(1, "seq " + std::to_string(kLines) + "; echo >" + done),
                {.output_fd = in.get()});
  in.Reset();
  // The rank has written everything: far more than the pipe holds, which nobody reads.
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, dsrun.pid(), 0)));
  std::array<pollfd, 2> events = {pollfd{finished.get(), POLLIN, 0},
                                  pollfd{process.get(), POLLIN, 0}};
  ASSERT_GT(::poll(events.data(), events.size(), /*timeout=*/300'000), 0);
  ASSERT_EQ(events[1].revents, 0) << "dsrun has ended";
  std::string expected;
  for (int i = 1; i <= kLines; ++i) expected += "0@localhost: " + std::to_string(i) + "\n";
  std::string text;
  std::vector<char> piece(1 << 16);
  for (ssize_t size = 0; (size = ::read(out.get(), piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
  EXPECT_EQ(dsrun.Wait().status, 0) << dsrun.err();
  EXPECT_EQ(text.size(), expected.size());
  EXPECT_TRUE(text == expected);
}

// A pipe that nobody reads, and a job that writes more than it takes.
class BlockedConsoleTest : public ConsoleTest {
 protected:
  BlockedConsoleTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    unread_.Reset(ends[0]);
    pipe_.Reset(ends[1]);
  }
  // The rank says by what process it was started, when it has written everything.
  std::vector<std::string> Flooding(const std::string& then) const {
    return Command(1, "seq 300000; echo $PPID >'" + written_ + "'; " + then);
  }
  pid_t AwaitWritten() const { return std::stoi(*ReadFile(written_)); }

  const std::string written_ = MakeFifo("written");
  UniqueFd unread_;
  UniqueFd pipe_;
};

TEST_F(BlockedConsoleTest, ASignalAfterTheEndEndsTheWaitForIt) {
  const std::string go = MakeFifo("go");
  Program dsrun(Flooding("read go <'" + go + "'; exit 3"), {.output_fd = pipe_.get()});
  const pid_t guardian = ParentOf(AwaitWritten());  // the last process that dsrun awaits
  const UniqueFd daemon(static_cast<int>(::syscall(SYS_pidfd_open, guardian, 0)));
  ASSERT_TRUE(WriteAll(UniqueFd(::open(go.c_str(), O_WRONLY)).get(), "go\n", "fifo").ok());
  pollfd ended{daemon.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ended, 1, /*timeout=*/300'000), 1);
  dsrun.Signal(SIGTERM);
  EXPECT_EQ(dsrun.Wait().status, 3);
  EXPECT_THAT(dsrun.err(), HasSubstr("the job failed"));
  EXPECT_THAT(dsrun.err(), HasSubstr("the run directory has the output that is not shown"));
  EXPECT_TRUE(std::filesystem::exists(Path("run/verdict.json")));
}

// Nobody may be there to send another.
TEST_F(BlockedConsoleTest, OneSignalStopsTheJob) {
  Program dsrun(Flooding("exec sleep 600"), {.output_fd = pipe_.get()});
  EXPECT_GT(AwaitWritten(), 0);
  dsrun.Signal(SIGTERM);
  EXPECT_EQ(dsrun.Wait().status, 143);
  EXPECT_THAT(dsrun.err(), HasSubstr("the run directory has the output that is not shown"));
}

}  // namespace
}  // namespace ds::testing
