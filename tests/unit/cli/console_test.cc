#include "cli/console/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>

#include "runtime/base/clock.h"
#include "runtime/base/unique_fd.h"
#include "tests/support/terminal.h"
#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using testing::At;
using testing::Checkpoint;
using testing::Notice;
using testing::Output;
using testing::Partial;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

constexpr std::int64_t kSecond = 1'000'000'000;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read.Reset(ends[0]);
    write.Reset(ends[1]);
  }
  UniqueFd read;
  UniqueFd write;
};

// Makes a stream of this process a pipe, as a console is: a file is never blocked.
class PipedStream {
 public:
  explicit PipedStream(int fd) : fd_(fd), saved_(::dup(fd)) {
    ::fflush(nullptr);
    ::dup2(pipe_.write.get(), fd_);
  }
  // What was written; the stream is what it was before.
  std::string Take() {
    ::dup2(saved_.get(), fd_);
    pipe_.write.Reset();
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t size = 0; (size = ::read(pipe_.read.get(), piece.data(), piece.size())) > 0;) {
      text.append(piece.data(), static_cast<std::size_t>(size));
    }
    return text;
  }

 private:
  const int fd_;
  const UniqueFd saved_;
  Pipe pipe_;
};

v1::Event TimedStep(int step, std::int64_t unix_nanos) {
  return At(unix_nanos, testing::Step(step, 1.5));
}

// What a console with `options` writes for `events`, which arrive at their times: stdout and
// stderr.
std::pair<std::string, std::string> Shown(const ConsoleOptions& options,
                                          const std::vector<v1::Event>& events) {
  CaptureStdout();
  CaptureStderr();
  {
    ManualClock clock;
    BacklogWriter writer;
    Console console(options, &writer, clock);
    const std::string host = "h";
    for (const v1::Event& event : events) {
      clock.Advance(std::max(std::chrono::nanoseconds(event.unix_nanos()) - clock.Now(),
                             std::chrono::nanoseconds(0)));
      console.OnEvent({host, 0, event});
    }
    console.Finish();
  }
  return {GetCapturedStdout(), GetCapturedStderr()};
}

TEST(ConsoleTest, OutputIsPrefixedAndStaysOnItsStream) {
  const auto [out, err] =
      Shown({}, {Output(3, "hello\nworld\n"), Output(1, "oops\n", true), Output(0, "no newline")});
  EXPECT_EQ(out, "3@h: hello\n3@h: world\n0@h: no newline\n");
  EXPECT_EQ(err, "1@h: oops\n");
}

TEST(ConsoleTest, CarriageReturnsEndLinesToo) {
  EXPECT_EQ(Shown({}, {Output(0, "10%\r20%\rdone\r\nnext\n")}).first,
            "0@h: 10%\n0@h: 20%\n0@h: done\n0@h: next\n");
}

TEST(ConsoleTest, PlainLinesForTheFirstTheLastAndEveryFewSeconds) {
  const auto [out, err] =
      Shown({.total_steps = 9}, {TimedStep(1, 0), TimedStep(2, kSecond), TimedStep(3, 6 * kSecond),
                                 TimedStep(4, 7 * kSecond), TimedStep(5, 8 * kSecond)});
  EXPECT_EQ(out,
            "step 1/9  loss 1.5000\nstep 3/9  loss 1.5000  left 18s\n"
            "step 5/9  loss 1.5000  left 8s\n");
}

// Or a restart has moved rank 0 to a host whose clock is behind.
TEST(ConsoleTest, AClockThatIsSetBackHidesNoStep) {
  CaptureStdout();
  {
    ManualClock clock;
    BacklogWriter writer;
    Console console({.total_steps = 9}, &writer, clock);
    for (const int step : {1, 2, 3}) {
      console.OnEvent({"h", 0, TimedStep(step, (9 - step) * 3600 * kSecond)});
      clock.Advance(std::chrono::seconds(6));
    }
  }
  EXPECT_EQ(GetCapturedStdout(),
            "step 1/9  loss 1.5000\nstep 2/9  loss 1.5000  left 42s\n"
            "step 3/9  loss 1.5000  left 36s\n");
}

TEST(ConsoleTest, TheLastStepOfTheTotalIsShownOnce) {
  EXPECT_EQ(Shown({.total_steps = 2}, {TimedStep(1, 0), TimedStep(2, kSecond)}).first,
            "step 1/2  loss 1.5000\nstep 2/2  loss 1.5000\n");
}

TEST(ConsoleTest, TheLiveLineIsRedrawnBelowTheOutput) {
  const auto [out, err] =
      Shown({.live_line = true},
            {TimedStep(1, 0), At(kSecond, Output(0, "text\n")), TimedStep(2, kSecond)});
  EXPECT_EQ(out,
            "\r\x1b[Kstep 1  loss 1.5000\r\x1b[Kstep 2  loss 1.5000\r\x1b[K0@h: text\n"
            "step 2  loss 1.5000\n");
}

TEST(ConsoleTest, TheLiveLineFitsTheTerminal) {
  const auto [out, err] = Shown({.live_line = true, .columns = 8}, {TimedStep(100, 0)});
  EXPECT_EQ(out, "\r\x1b[Kstep 10\r\x1b[Kstep 100  loss 1.5000\n");
}

TEST(ConsoleTest, TheLiveLineFollowsTheWidthOfTheTerminal) {
  ds::testing::Terminal terminal;
  const UniqueFd saved(::dup(STDOUT_FILENO));
  ::fflush(nullptr);
  ASSERT_EQ(::dup2(terminal.fd(), STDOUT_FILENO), STDOUT_FILENO);
  {
    ManualClock clock;
    BacklogWriter writer;
    Console console({.live_line = true, .columns = 80}, &writer, clock);
    console.OnEvent({"h", 0, TimedStep(100, 0)});
    const winsize narrow{.ws_row = 24, .ws_col = 8, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(::ioctl(terminal.fd(), TIOCSWINSZ, &narrow), 0);
    clock.Advance(std::chrono::seconds(1));
    console.OnEvent({"h", 0, TimedStep(101, 0)});
    writer.WriteAlways(STDOUT_FILENO, "#");
  }
  ::dup2(saved.get(), STDOUT_FILENO);
  ASSERT_TRUE(terminal.WaitFor("#"));
  EXPECT_EQ(terminal.shown(), "\r\x1b[Kstep 100  loss 1.5000\r\x1b[Kstep 10#");
}

TEST(ConsoleTest, NoRowOfTheLiveLinesWraps) {
  std::vector<v1::Event> events;
  for (int rank = 0; rank < 12; ++rank) {
    events.push_back(At((rank + 1) * 2 * kSecond, Partial(Output(rank, "0123456789012345678901"))));
  }
  const auto [out, err] = Shown({.live_line = true, .columns = 20}, events);
  EXPECT_NE(out.find("more unf"), std::string::npos) << out;
  EXPECT_EQ(out.find("more unfinished lines"), std::string::npos) << out;
}

// A console that is blocked takes no row: there is none to be erased then.
TEST(ConsoleTest, RowsThatWereDroppedAreNotErased) {
  PipedStream out(STDOUT_FILENO);
  PipedStream err(STDERR_FILENO);
  {
    ManualClock clock;
    BacklogWriter writer(/*limit_bytes=*/40);
    Console console({.live_line = true}, &writer, clock);
    console.OnEvent({"h", 0, At(kSecond, Partial(Output(0, "a")))});
    clock.Advance(std::chrono::seconds(2));
    console.OnEvent({"h", 0, At(3 * kSecond, Partial(Output(1, std::string(60, 'x'))))});
    console.ShowNotice("n");
  }
  EXPECT_EQ(out.Take(), "\r\x1b[K0@h: a\r\x1b[K");
  EXPECT_EQ(err.Take(), "dsrun: n\n") << "nothing is lost";
}

TEST(ConsoleTest, ALineThatIsNotEndedIsShownOnATerminal) {
  const auto [out, err] = Shown(
      {.live_line = true},
      {At(kSecond, Partial(Output(0, "name? "))), At(3 * kSecond, Partial(Output(1, "bar 1%"))),
       At(5 * kSecond, Output(0, "me\n")), At(7 * kSecond, testing::Exited(1, 0))});
  EXPECT_EQ(out,
            "\r\x1b[K0@h: name? "
            "\r\x1b[K1@h: bar 1%\n0@h: name? "
            "\r\x1b[K\x1b[1A\x1b[K0@h: name? me\n1@h: bar 1%\n");
}

TEST(ConsoleTest, ElsewhereALineThatIsNotEndedWaitsForItsEnd) {
  const std::vector<v1::Event> events = {Partial(Output(0, "na")), Output(1, "other\n"),
                                         Output(0, "me\n"), Partial(Output(0, "end"))};
  EXPECT_EQ(Shown({}, events).first, "1@h: other\n0@h: name\n0@h: end\n");
  EXPECT_EQ(Shown({.prompts = true}, events).first, "0@h: na\n1@h: other\n0@h: me\n0@h: end\n");
}

TEST(ConsoleTest, LinesCarryTheirTime) {
  constexpr std::int64_t kNanos = 1'763'859'600'123'456'789;
  const auto [out, err] = Shown({.timestamps = true}, {At(kNanos, Output(0, "a\nb\n")),
                                                       At(kNanos + 1, Output(1, "b\n", false))});
  EXPECT_EQ(out, "2025-11-23T01:00:00.123Z 0@h: a\n2025-11-23T01:00:00.123Z [0-1] b (x2)\n");
}

TEST(ConsoleTest, MessagesHaveNoControlCharacters) {
  EXPECT_EQ(Shown({}, {Notice(0, "\x1b]0;title\x07")}).second, "dsrun: \\x1b]0;title\\x07\n");
  CaptureStderr();
  {
    BacklogWriter writer;
    Console console({}, &writer);
    console.ShowVerdict({.message = "m\x1b[2J", .last_lines = {"\r 10%\r 20%", "\x1b[31mred"}},
                        "/r");
  }
  const std::string block = GetCapturedStderr();
  EXPECT_EQ(block.find('\x1b'), std::string::npos) << block;
  EXPECT_NE(block.find("|  20%\n    | \\x1b[31mred"), std::string::npos) << block;
}

TEST(ConsoleTest, QuietShowsNeitherOutputNorProgress) {
  const auto [out, err] =
      Shown({.quiet = true}, {Output(0, "x\n"), TimedStep(1, 0), Notice(0, "n")});
  EXPECT_EQ(out, "");
  EXPECT_EQ(err, "");
}

// What is lost is a failure, even of a rank that has ended well.
TEST(ConsoleTest, ReportsTruncatedOutputWhenQuietToo) {
  v1::Event cut;
  cut.mutable_rank_exited()->set_rank(3);
  cut.mutable_rank_exited()->set_output_cut(true);
  for (const bool quiet : {false, true}) {
    const std::string err = Shown({.quiet = quiet}, {cut}).second;
    EXPECT_NE(err.find("dsrun: rank 3 on h has exited; the processes that it left"),
              std::string::npos)
        << err;
  }
  cut.mutable_rank_exited()->set_stopping(true);
  EXPECT_EQ(Shown({.quiet = true}, {cut}).second, "");
}

TEST(ConsoleTest, ErrorsOnlyShowsStandardErrorAndNotices) {
  const auto [out, err] =
      Shown({.errors_only = true, .shown = LogFilter::Parse("", true).value()},
            {Output(0, "x\n"), Output(0, "bad\n", true), TimedStep(1, 0), Notice(0, "n")});
  EXPECT_EQ(out, "");
  EXPECT_EQ(err, "0@h: bad\ndsrun: n\n");
}

TEST(ConsoleTest, OnlyTheChosenRanksAreShown) {
  const auto [out, err] = Shown({.shown = LogFilter::Parse("1-2").value()},
                                {Output(0, "same\n"), Output(1, "same\n"), Output(2, "same\n"),
                                 Output(3, "oops\n", true), Output(2, "oops\n", true)});
  EXPECT_EQ(out, "[1-2] same (x2)\n");
  EXPECT_EQ(err, "2@h: oops\n");
}

TEST(ConsoleTest, NoticesAndCheckpointsOfRanksAreShown) {
  EXPECT_EQ(Shown({}, {Notice(0, "careful"), Checkpoint(2, "/c/step-2")}).second,
            "dsrun: careful\ndsrun: saved /c/step-2\n");
}

TEST(ConsoleTest, TheVerdictBlock) {
  CaptureStderr();
  {
    BacklogWriter writer;
    Console console({.quiet = true}, &writer);
    console.ShowVerdict({.cause = Cause::kSignal,
                         .rank = 1,
                         .host = "h",
                         .exit_code = 137,
                         .signal = 9,
                         .generation = 2,
                         .step = 12,
                         .message = "rank 1 on h was killed by signal 9 (SIGKILL)",
                         .proof = "process 7 was ended by signal 9 (SIGKILL)",
                         .last_lines = {"one", "two"},
                         .hint = "look\n  here\n  or there",
                         .pid = 7},
                        "/runs/x");
  }
  EXPECT_EQ(GetCapturedStderr(),
            "dsrun: the job failed: rank 1 on h was killed by signal 9 (SIGKILL)\n"
            "  cause      signal\n"
            "  where      rank 1 on h, pid 7, generation 2\n"
            "  last step  12\n"
            "  proof      process 7 was ended by signal 9 (SIGKILL)\n"
            "  its last lines:\n"
            "    | one\n"
            "    | two\n"
            "  what to do look\n"
            "               here\n"
            "               or there\n"
            "  files      /runs/x\n"
            "  status     137\n");
}

TEST(BacklogWriterTest, ABlockedConsoleDropsLinesButNeverBlocksOrDropsNotices) {
  Pipe pipe;
  CaptureStderr();
  {
    BacklogWriter writer(/*limit_bytes=*/1 << 20);
    const std::string block(std::size_t{1} << 19, 'x');  // more than a pipe holds
    writer.WriteLines(pipe.write.get(), block);
    writer.WriteLines(pipe.write.get(), block);
    writer.WriteLines(pipe.write.get(), "one\ntwo\n");
    EXPECT_EQ(writer.dropped_lines(), 2u);
    writer.WriteAlways(pipe.write.get(), "verdict\n");
    std::string read(2 * block.size() + 8, 0);
    for (std::size_t got = 0; got < read.size();) {
      const ssize_t n = ::read(pipe.read.get(), read.data() + got, read.size() - got);
      ASSERT_GT(n, 0);
      got += static_cast<std::size_t>(n);
    }
    EXPECT_EQ(read.substr(2 * block.size()), "verdict\n");
    writer.Flush();
    writer.WriteLines(pipe.write.get(), "after\n");
  }
  EXPECT_EQ(GetCapturedStderr(),
            "dsrun: 2 lines, 8 B, are not shown here because the console was blocked; the run "
            "directory has all\n");
}

// A rank may say more than a blocked console has room for; what dsrun itself says is little.
TEST(BacklogWriterTest, RemarksOfRanksAreDroppedByABlockedConsoleLikeTheirOutput) {
  Pipe pipe;
  PipedStream err(STDERR_FILENO);
  {
    BacklogWriter writer(/*limit_bytes=*/1 << 20);
    Console console({}, &writer);
    writer.WriteLines(pipe.write.get(), std::string(std::size_t{1} << 20, 'x'));
    console.OnEvent({"h", 0, Notice(0, "a remark")});
    console.OnEvent({"h", 0, Checkpoint(3, "saved/step-3")});
    console.ShowNotice("what dsrun says");
    EXPECT_EQ(writer.dropped_lines(), 2u);
    std::string read(std::size_t{1} << 20, 0);
    for (std::size_t got = 0; got < read.size();) {
      const ssize_t n = ::read(pipe.read.get(), read.data() + got, read.size() - got);
      ASSERT_GT(n, 0);
      got += static_cast<std::size_t>(n);
    }
  }
  EXPECT_EQ(
      err.Take(),
      "dsrun: what dsrun says\ndsrun: 2 lines, 42 B, are not shown here because the console was "
      "blocked; the run directory has all\n");
}

// The job's last lines are as good as any.
TEST(BacklogWriterTest, DroppedLinesAreReportedThoughNoneComesLater) {
  Pipe pipe;
  CaptureStderr();
  BacklogWriter writer(/*limit_bytes=*/1 << 20);
  const std::string block(std::size_t{1} << 20, 'x');  // more than a pipe holds
  writer.WriteLines(pipe.write.get(), block);
  writer.WriteLines(pipe.write.get(), "one\ntwo\nthree\n");
  EXPECT_EQ(writer.dropped_lines(), 3u);
  std::string read(block.size(), 0);
  for (std::size_t got = 0; got < read.size();) {
    const ssize_t n = ::read(pipe.read.get(), read.data() + got, read.size() - got);
    ASSERT_GT(n, 0);
    got += static_cast<std::size_t>(n);
  }
  writer.Flush();
  EXPECT_EQ(GetCapturedStderr().substr(0, 34), "dsrun: 3 lines, 14 B, are not show");
}

TEST(BacklogWriterTest, GivingUpABlockedConsoleEndsTheWait) {
  ::signal(SIGPIPE, SIG_IGN);  // the pipe goes before the thread that writes to it
  Pipe blocked;
  PipedStream err(STDERR_FILENO);
  {
    BacklogWriter writer;
    writer.WriteLines(blocked.write.get(), std::string(std::size_t{1} << 20, 'x'));
    writer.WriteAlways(STDERR_FILENO, "the verdict\n");
    writer.GiveUp();
    writer.GiveUp();
    writer.Flush();
    writer.WriteAlways(STDERR_FILENO, "later\n");
  }
  EXPECT_EQ(err.Take(),
            "the verdict\ndsrun: the console is blocked and dsrun no longer waits for it: the run "
            "directory has the output that is not shown\n");
}

TEST(BacklogWriterTest, GivingUpADrainedConsoleIsSilent) {
  PipedStream err(STDERR_FILENO);
  {
    BacklogWriter writer;
    writer.WriteAlways(STDERR_FILENO, "the verdict\n");
    writer.Flush();
    EXPECT_EQ(writer.written_bytes(), 12u);
    writer.GiveUp();
  }
  EXPECT_EQ(err.Take(), "the verdict\n");
}

// A file on a slow disk takes everything in the end, however much there is.
TEST(BacklogWriterTest, ARegularFileLosesNothingAndIsNeverCalledBlocked) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const UniqueFd console(::dup(::fileno(file)));
  std::fclose(file);
  constexpr std::size_t kText = std::size_t{5} << 20;
  BacklogWriter writer(/*limit_bytes=*/1 << 20);
  writer.WriteLines(console.get(), std::string(kText, 'x'));
  writer.WriteLines(console.get(), std::string(kText, 'y'));
  EXPECT_TRUE(writer.WriteRows(console.get(), std::string(kText, 'z')));
  EXPECT_EQ(writer.dropped_lines(), 0u);
  writer.Flush();
  EXPECT_EQ(::lseek(console.get(), 0, SEEK_END), static_cast<off_t>(3 * kText));
}

}  // namespace
}  // namespace ds::cli
