// bash completes dsrun's words: a real bash reads a terminal in which somebody types tabs, and runs
// what has become of the line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/terminal.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

class CompletionTest : public ::testing::Test {
 protected:
  // What bash's commands print when `line` has been typed, with tabs in it.
  std::string Type(const std::string& line) {
    Terminal terminal;
    Program bash({"/bin/bash", "--noprofile", "--norc", "-i"},
                 {.environment = {"PATH=" DS_BIN_DIR ":/usr/bin:/bin", "PS1=prompt> ", "TERM=dumb",
                                  "HOME=" + folder_.path().string(), "INPUTRC=/dev/null"},
                  .working_directory = folder_.path(),
                  .input_fd = terminal.fd(),
                  .owns_terminal = true});
    terminal.Type("eval \"$(dsrun completion bash)\"; echo re''ady\n");
    EXPECT_TRUE(bash.WaitForOutput("ready\n")) << bash.err();
    terminal.Type(line + "\n");
    terminal.Type("echo status $?; exit\n");
    EXPECT_TRUE(bash.WaitForOutput("status ")) << bash.out() << bash.err();
    return bash.Wait().out;
  }

  TemporaryFolder folder_;
};

TEST_F(CompletionTest, Commands) { EXPECT_THAT(Type("dsrun vers\t"), HasSubstr("\ndsrun 0.")); }

TEST_F(CompletionTest, FlagsAndTheirValues) {
  for (const char* line : {"dsrun --devi\tcp\t --num_g\t2 pl\t -- /bin/true",
                           "dsrun --device=cp\t --num_gpus=2 plan /bin/true"}) {
    const std::string out = Type(line);
    EXPECT_THAT(out, HasSubstr("2 ranks on 1 host")) << line;
    EXPECT_THAT(out, HasSubstr("status 0")) << line;
  }
}

TEST_F(CompletionTest, Files) {
  ASSERT_TRUE(
      WriteFileAtomically(folder_.path() / "my config.json", R"({"train_batch_size": 8})").ok());
  EXPECT_THAT(Type("dsrun check --world_s\t2 my\t"), HasSubstr("is good for 2 ranks"));
}

TEST_F(CompletionTest, OtherShellsHaveTheirScripts) {
  for (const char* shell : {"zsh", "fish"}) {
    const ProgramResult result = RunProgram({DS_BIN_DIR "/dsrun", "completion", shell});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, HasSubstr("completion words"));
  }
  EXPECT_EQ(RunProgram({DS_BIN_DIR "/dsrun", "completion", "fist"}).err,
            "dsrun: completion: no script for 'fist'; did you mean 'fish'?\n");
}

}  // namespace
}  // namespace ds::testing
