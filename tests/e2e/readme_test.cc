// Every command of README.md is run as it is written there, in a folder that looks like a checkout
// with a user's own programs in it. Of a table row, the command in its last column; one with a '&'
// behind it runs until the last one has ended.
//
// Not run here, each for its reason: `scripts/test.sh` (it runs this test), `cmake --install`
// (package_test installs into a folder of its own).

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;

// "| `theirs` | `build/bin/ours ...` |": ours; "" for any other line.
std::string CommandOfRow(const std::string& line) {
  constexpr std::string_view kProgram = "`build/bin/";
  const std::size_t start = line.rfind(kProgram);
  if (!line.starts_with("|") || start == std::string::npos) return "";
  const std::size_t end = line.find('`', start + 1);
  return line.substr(start + 1, end - start - 1);
}

std::vector<std::string> CommandsOfReadme() {
  std::istringstream readme(*ReadFile(DS_SOURCE_DIR "/README.md"));
  std::vector<std::string> commands;
  for (std::string line; std::getline(readme, line);) {
    for (const char* program : {"    build/bin/", "    scripts/run.sh"}) {
      if (line.starts_with(program)) commands.push_back(line.substr(4));
    }
    if (std::string command = CommandOfRow(line); !command.empty()) {
      commands.push_back(std::move(command));
    }
  }
  return commands;
}

std::vector<std::string> Words(const std::string& command) {
  std::istringstream stream(command);
  return {std::istream_iterator<std::string>(stream), {}};
}

// What the commands call theirs: train.py, package.train, my_program, hostfile, job.env.
void WriteUsersFiles(const fs::path& folder) {
  const std::string script = "import os\nprint('rank', os.environ['RANK'])\n";
  fs::create_directories(folder / "package");
  ASSERT_TRUE(WriteFileAtomically(folder / "train.py", script).ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "package/train.py", script).ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "my_program", "#!/bin/sh\necho $RANK\n", 0755).ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "hostfile", "localhost slots=4\n").ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "job.env", "NCCL_DEBUG=WARN\n").ok());
}

TEST(ReadmeTest, EveryCommandRuns) {
  const auto commands = CommandsOfReadme();
  ASSERT_GE(commands.size(), 20u) << "README.md has lost its commands";
  TemporaryFolder folder;
  for (const char* name : {"configs", "hostfile_examples", "scripts", "README.md"}) {
    fs::create_symlink(fs::path(DS_SOURCE_DIR) / name, folder.path() / name);
  }
  fs::create_symlink(fs::path(DS_BIN_DIR).parent_path(), folder.path() / "build");
  WriteUsersFiles(folder.path());
  const ProgramOptions options{.working_directory = folder.path()};
  for (const std::string& command : commands) {
    const auto result = RunProgram(Words(command), options);
    // A report says 3 on a machine that could not run a job; that is the machine's state, not
    // README's.
    const bool judged = command.find("dsrun report") != std::string::npos && result.status == 3;
    EXPECT_TRUE(result.status == 0 || judged) << command << "\n" << result.out << result.err;
  }
}

}  // namespace
}  // namespace ds::testing
