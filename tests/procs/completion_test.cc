// Shells complete dsrun's words: a real bash or zsh reads a terminal in which somebody types tabs,
// and runs what has become of the line; fish is asked what it would offer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/support/terminal.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

class CompletionTest : public ::testing::Test {
 protected:
  virtual Strings shell() const { return {"/bin/bash", "--noprofile", "--norc", "-i"}; }
  virtual std::string setup() const { return "eval \"$(dsrun completion bash)\""; }

  Strings Environment() const {
    return {"PATH=" DS_BIN_DIR ":/usr/bin:/bin", "PS1=prompt> ", "TERM=dumb",
            "HOME=" + folder_.path().string(), "INPUTRC=/dev/null"};
  }
  // What the shell's commands print when `line` has been typed, with tabs in it.
  std::string Type(const std::string& line) {
    Terminal terminal;
    Program program(shell(), {.environment = Environment(),
                              .working_directory = folder_.path(),
                              .input_fd = terminal.fd(),
                              .owns_terminal = true});
    terminal.Type(setup() + "; echo re''ady\n");
    EXPECT_TRUE(program.WaitForOutput("ready\n")) << program.err();
    terminal.Type(line + "\n");
    terminal.Type("echo status $?; exit\n");
    EXPECT_TRUE(program.WaitForOutput("status ")) << program.out() << program.err();
    return program.Wait().out;
  }
  void ExpectFlagsAndTheirValues() {
    for (const char* line : {"dsrun --devi\tcp\t --num_g\t2 pl\t -- /bin/true",
                             "dsrun --device=cp\t --num_gpus=2 plan /bin/true"}) {
      const std::string out = Type(line);
      EXPECT_THAT(out, HasSubstr("2 ranks on 1 host")) << line;
      EXPECT_THAT(out, HasSubstr("status 0")) << line;
    }
  }
  void ExpectFiles() {
    ASSERT_TRUE(
        WriteFileAtomically(folder_.path() / "my config.json", R"({"train_batch_size": 8})").ok());
    EXPECT_THAT(Type("dsrun check --world_s\t2 my\t"), HasSubstr("is good for 2 ranks"));
  }

  TemporaryFolder folder_;
};

TEST_F(CompletionTest, Commands) { EXPECT_THAT(Type("dsrun vers\t"), HasSubstr("\ndsrun 0.")); }
TEST_F(CompletionTest, FlagsAndTheirValues) { ExpectFlagsAndTheirValues(); }
TEST_F(CompletionTest, Files) { ExpectFiles(); }

class ZshCompletionTest : public CompletionTest {
 protected:
  void SetUp() override {
    if (::access("/usr/bin/zsh", X_OK) != 0) return SkipWithout("shells", "there is no zsh");
  }
  Strings shell() const override { return {"/usr/bin/zsh", "-f", "-i"}; }
  std::string setup() const override {
    return "autoload -U compinit; compinit -u -D; eval \"$(dsrun completion zsh)\"";
  }
};

TEST_F(ZshCompletionTest, Commands) { EXPECT_THAT(Type("dsrun vers\t"), HasSubstr("\ndsrun 0.")); }
TEST_F(ZshCompletionTest, FlagsAndTheirValues) { ExpectFlagsAndTheirValues(); }
TEST_F(ZshCompletionTest, Files) { ExpectFiles(); }

TEST_F(CompletionTest, FishOffersTheSame) {
  if (::access("/usr/bin/fish", X_OK) != 0) return SkipWithout("shells", "there is no fish");
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "my config.json", "{}").ok());
  const std::pair<const char*, const char*> offers[] = {
      {"dsrun vers", "version\t"},
      {"dsrun --num_gpus 2 --device c", "cpu"},
      {"dsrun check --world_s", "--world_size\t"},
      {"dsrun check --world_size 2 my", "my config.json"},
  };
  for (const auto& [line, offer] : offers) {
    const ProgramResult result =
        RunProgram({"/usr/bin/fish", "--no-config", "-c",
                    "dsrun completion fish | source; complete -C '" + std::string(line) + "'"},
                   {.environment = Environment(), .working_directory = folder_.path()});
    EXPECT_THAT(result.out, HasSubstr(offer)) << line << "\n" << result.err;
  }
}

TEST_F(CompletionTest, AnotherShellIsRefused) {
  EXPECT_EQ(RunProgram({DS_BIN_DIR "/dsrun", "completion", "fist"}).err,
            "dsrun: completion: no script for 'fist', only for bash, zsh and fish; did you mean "
            "'fish'?\n");
}

}  // namespace
}  // namespace ds::testing
