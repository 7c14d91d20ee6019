#include "cli/commands/command_flags.h"

#include <iostream>
#include <sstream>

#include "cli/flags/launch_flags.h"

namespace ds::cli {
namespace {

// Captures output to std::cout during its lifetime, because a parser prints its descriptions there,
// like its help.
class CapturedOutput {
 public:
  CapturedOutput() : stdout_(std::cout.rdbuf(text_.rdbuf())) {}
  ~CapturedOutput() { std::cout.rdbuf(stdout_); }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* const stdout_;
};

}  // namespace

FlagDescriptions DescribeLaunchFlags() {
  LaunchFlags flags;
  FlagParser parser("", "");
  AddLaunchFlags(&parser, &flags);
  FlagDescriptions described = parser.Describe();
  described.flags.insert(
      described.flags.begin() + 1,
      {.names = {"--version"}, .help = "show the version", .group = described.flags.front().group});
  return described;
}

FlagDescriptions DescribeCommand(const Command& command) {
  const CapturedOutput output;
  const StatusOr<int> status =
      command.run(Invocation{.arguments = {std::string(kDescribeFlagsWord)}});
  return status.ok() ? ParseFlagDescriptions(output.text()) : FlagDescriptions{};
}

}  // namespace ds::cli
