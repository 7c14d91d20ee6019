#include "daemon/ranks/rank_process.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::daemon {
namespace {

std::string ExecuteError(const std::string& content, int error) {
  const testing::TemporaryFolder folder;
  EXPECT_TRUE(WriteFileAtomically(folder.path() / "prog", content, 0755).ok());
  RankCommand command{.executable = "./prog", .working_directory = folder.path().string()};
  RankChild child;
  child.failed_step = ChildStep::kExecute;
  child.failed_errno = error;
  return MakeStartError(child, command).message();
}

TEST(StartErrorTest, NamesTheMissingInterpreterOfAnExistingFile) {
  EXPECT_EQ(ExecuteError("#! /no/such/python -u\nx\n", ENOENT),
            "cannot execute ./prog: No such file or directory (its first line names the "
            "interpreter /no/such/python, which is not on this host)");
  EXPECT_EQ(ExecuteError("#!/bin/sh\r\nx\r\n", ENOENT),
            "cannot execute ./prog: No such file or directory (its first line ends as on Windows: "
            "sed -i 's/\\r$//' prog)");
  EXPECT_EQ(ExecuteError("\x7F"
                         "ELF\x02",
                         ENOENT),
            "cannot execute ./prog: No such file or directory (the file is there; the loader it "
            "was linked for is not on this host)");
  EXPECT_EQ(ExecuteError("echo hello\n", ENOEXEC),
            "cannot execute ./prog: Exec format error (a script needs '#!' and its interpreter in "
            "the first line, for example #!/bin/sh)");
  EXPECT_EQ(ExecuteError("\x7F"
                         "ELF\x02",
                         ENOEXEC),
            "cannot execute ./prog: Exec format error (a program for another kind of machine?)");
  EXPECT_EQ(ExecuteError("x", E2BIG), "cannot execute ./prog: Argument list too long");
  EXPECT_EQ(ExecuteError("", ENOEXEC).find("ELF"), std::string::npos);
}

}  // namespace
}  // namespace ds::daemon
