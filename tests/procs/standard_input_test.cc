// Rank 0 reads what dsrun reads: all of it, from wherever it comes, and nobody waits for input that
// nobody wants.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/terminal.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StandardInputTest : public ::testing::Test {
 protected:
  std::vector<std::string> Command(const std::vector<std::string>& flags,
                                   const std::string& script) const {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir",
                                        run().string()};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", "/bin/sh", "-c", script});
    return command;
  }
  fs::path run() const { return folder_.path() / "run"; }
  std::string Output(int generation, int rank) const {
    const auto text = ReadFile(run() / "logs" / std::to_string(generation) /
                               ("rank-0000" + std::to_string(rank) + ".out"));
    return text.ok() ? *text : text.status().message();
  }

  TemporaryFolder folder_;
};

std::string RandomBytes(std::size_t count) {
  std::mt19937 random(7);
  std::string bytes;
  while (bytes.size() < count) bytes += static_cast<char>(random() % 256);
  return bytes;
}

TEST_F(StandardInputTest, APipeArrivesByteForByteAtRankZeroOnly) {
  const std::string sent = RandomBytes(3 << 20);
  std::array<int, 2> ends;
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd input(ends[0]);
  std::thread writer(
      [&sent, end = UniqueFd(ends[1])] { EXPECT_TRUE(WriteAll(end.get(), sent, "pipe").ok()); });
  // Slowly at first, so that the input has to wait for its reader.
  const ProgramResult result =
      RunProgram(Command({"-q", "--num_gpus", "2"}, "head -c 10; sleep 0.2; exec cat"),
                 {.input_fd = input.get()});
  writer.join();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Output(0, 0) == sent) << Output(0, 0).size() << " bytes";
  EXPECT_EQ(Output(0, 1), "");
}

TEST_F(StandardInputTest, UnreadInputDelaysNothing) {
  const UniqueFd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(RunProgram(Command({}, "exit 0"), {.input_fd = zeros.get()}).status, 0);
  fs::remove_all(run());
  EXPECT_EQ(RunProgram(Command({}, "exec <&-; exit 3"), {.input_fd = zeros.get()}).status, 3);
}

TEST_F(StandardInputTest, AFileIsThereAgainAfterARestart) {
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "in", "one\ntwo\n").ok());
  const UniqueFd file(::open((folder_.path() / "in").c_str(), O_RDONLY | O_CLOEXEC));
  const ProgramResult result =
      RunProgram(Command({"--max_restarts", "1"}, "cat; exit $((5 * (1 - DSRUN_GENERATION)))"),
                 {.input_fd = file.get()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Output(0, 0), "one\ntwo\n");
  EXPECT_EQ(Output(1, 0), "one\ntwo\n");
}

TEST_F(StandardInputTest, ATerminalsCtrlDEndsIt) {
  Terminal terminal;
  Program program(Command({}, "cat; echo end of input"),
                  {.input_fd = terminal.fd(), .owns_terminal = true});
  terminal.Type("typed\n");
  ASSERT_TRUE(program.WaitForOutput("typed"));
  terminal.Type("\x04");
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Output(0, 0), "typed\nend of input\n");
}

TEST_F(StandardInputTest, APromptIsSeenBeforeItIsAnswered) {
  Terminal terminal;
  Program program(Command({}, "printf 'name? '; read -r name; echo hello $name"),
                  {.input_fd = terminal.fd(), .owns_terminal = true});
  ASSERT_TRUE(program.WaitForOutput("name? "));
  terminal.Type("me\n");
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("hello me\n"));
  EXPECT_EQ(Output(0, 0), "name? hello me\n");
}

TEST_F(StandardInputTest, ClosedStandardStreamsAreNotReused) {
  for (const auto& [closed, shows_output] : std::map<std::string, bool>{
           {"<&-", true}, {">&-", false}, {"2>&-", true}, {"<&- >&- 2>&-", false}}) {
    std::vector<std::string> command = {"/bin/sh", "-c", "exec \"$@\" " + closed, "sh"};
    for (const std::string& word : Command({}, "cat; echo out; echo err >&2; exit 7")) {
      command.push_back(word);
    }
    const ProgramResult result = RunProgram(command, {.time_limit = std::chrono::seconds(120)});
    EXPECT_EQ(result.status, 7) << closed << result.err;
    EXPECT_EQ(Output(0, 0), "out\n") << closed;
    EXPECT_EQ(result.out.find("out\n") != std::string::npos, shows_output) << closed << result.out;
    fs::remove_all(run());
  }
}

TEST_F(StandardInputTest, InTheBackgroundTheTerminalIsLeftToOthers) {
  Terminal terminal;
  const std::string go = (folder_.path() / "go").string();
  // The rank goes on when there is something in the terminal that dsrun could take wrongly.
  const std::string rank = "echo started; while [ ! -e '" + go + "' ]; do sleep 0.05; done";
  std::vector<std::string> command = {"/bin/bash", "-mc",
                                      "\"$@\" & wait $!; echo status $?; read -r line; "
                                      "echo the shell got $line",
                                      "bash"};
  for (const std::string& word : Command({}, rank)) command.push_back(word);
  Program program(command, {.input_fd = terminal.fd(), .owns_terminal = true});
  ASSERT_TRUE(program.WaitForOutput("started"));
  terminal.Type("for the shell\n");
  ASSERT_TRUE(WriteFileAtomically(go, "").ok());
  ASSERT_TRUE(program.WaitForOutput("the shell got for the shell\n")) << program.out();
  EXPECT_THAT(program.Wait().out, HasSubstr("status 0\n"));
}

}  // namespace
}  // namespace ds::testing
