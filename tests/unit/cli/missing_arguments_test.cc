// The error of a command that is given too little names the command and what it misses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/commands/command_table.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Given {
  std::string command;
  std::vector<std::string> arguments;
  std::string error;  // its beginning
};

std::string ErrorOf(const std::string& command, const std::vector<std::string>& arguments) {
  const StatusOr<int> status = FindCommand(command)->run(Invocation{.arguments = arguments});
  EXPECT_EQ(status.status().code(), StatusCode::kInvalidArgument);
  return std::string(status.status().message());
}

TEST(MissingArgumentsTest, NameTheCommandAndTheArgument) {
  const std::vector<Given> cases = {
      {"bench", {}, "bench: name a measurement: bench comm, bench io PATH or bench memory"},
      {"bench", {"io"}, "bench io: no PATH given; see dsrun bench io --help"},
      {"check", {}, "check: no CONFIG given"},
      {"checkpoint", {}, "checkpoint: neither verify nor list given"},
      {"checkpoint", {"lst"}, "checkpoint: 'lst' is neither verify nor list; did you mean 'list'?"},
      {"checkpoint", {"nosuch"}, "checkpoint: 'nosuch' is neither verify nor list"},
      {"checkpoint", {"list"}, "checkpoint list: no DIR given"},
      {"checkpoint", {"verify"}, "checkpoint verify: no DIR given"},
      {"completion", {}, "completion: no SHELL given; write bash, zsh or fish"},
      {"elastic", {}, "elastic: no config given"},
      {"estimate", {}, "estimate: give --model"},
      {"generate", {}, "generate: no --model given"},
      {"resume", {}, "resume: no RUN_DIR or JOB given"},
      {"run", {}, "run: no program given"},
      {"tokenize", {}, "tokenize: no FILES given"},
      {"tokenize", {"FILE"}, "tokenize: no --tokenizer given"},
      {"translate", {}, "translate: no FILE given"},
  };
  for (const Given& given : cases) {
    EXPECT_THAT(ErrorOf(given.command, given.arguments), StartsWith(given.error));
  }
}

// CLI11's own error, "DIR is required", does not name the command.
TEST(MissingArgumentsTest, NoCommandDeclaresRequiredOptions) {
  for (const Command& command : Commands()) {
    if (command.name == "help" || command.name == "version") continue;
    const StatusOr<int> status =
        command.run(Invocation{.arguments = {"--no_such_flag", "--no_such_flag"}});
    EXPECT_THAT(status.status().message(), Not(HasSubstr("is required"))) << command.name;
  }
}

}  // namespace
}  // namespace ds::cli
