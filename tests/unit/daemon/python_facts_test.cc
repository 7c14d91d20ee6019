#include "daemon/inspect/python_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "daemon/inspect/bound_facts.h"
#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;
using ::testing::StartsWith;

class PythonFactsTest : public ::testing::Test {
 protected:
  PythonFactsTest() { request_.set_program("python3"); }

  // A package that nobody may import.
  void MakeTorch(const fs::path& folder, const std::string& version) const {
    fs::create_directories(folder / "torch");
    Write(folder / "torch" / "__init__.py", "raise SystemExit('imported')\n");
    Write(folder / "torch" / "version.py",
          "from typing import Optional\n__all__ = ['__version__']\n__version__ = '" + version +
              "'\ncuda: Optional[str] = None\n");
  }
  static void Write(const fs::path& path, const std::string& content, unsigned mode = 0644) {
    ASSERT_TRUE(WriteFileAtomically(path, content, mode).ok());
  }
  void Set(const std::string& name, const std::string& value) {
    v1::EnvironmentVariable* variable = request_.add_environment();
    variable->set_name(name);
    variable->set_value(value);
  }
  v1::Python Describe() const { return DescribePython(request_, environment_); }
  // Describes a script of /bin/sh in place of an interpreter.
  v1::Python DescribeScript(const std::string& script,
                            std::chrono::nanoseconds time_limit = kPythonTimeout) {
    Write(Interpreter(), script, 0755);
    request_.set_program(Interpreter());
    return DescribePython(request_, environment_, time_limit);
  }
  std::string Interpreter() const { return (folder_.path() / "python3").string(); }

  const ds::testing::TemporaryFolder folder_;
  v1::PrepareRequest request_;
  std::vector<std::string> environment_ = {"PATH=/usr/bin:/bin"};
};

TEST_F(PythonFactsTest, TheVersionOfPytorchIsReadWithoutAnImport) {
  MakeTorch(folder_.path(), "2.11.0+cpu");
  Set("PYTHONPATH", folder_.path());
  const v1::Python python = Describe();
  EXPECT_EQ(python.problem(), "");
  EXPECT_EQ(python.torch(), "2.11.0+cpu");
  EXPECT_EQ("Python " + python.version() + "\n",
            ds::testing::RunProgram({"/usr/bin/python3", "--version"}).out);
}

TEST_F(PythonFactsTest, AFolderOfTheWorkingDirectoryIsNoPackage) {
  MakeTorch(folder_.path(), "1.0");
  request_.set_working_directory(folder_.path());
  const v1::Python python = Describe();
  EXPECT_EQ(python.problem(), "");
  EXPECT_NE(python.torch(), "1.0");
}

TEST_F(PythonFactsTest, OutputOfTheEnvironmentIsNoAnswer) {
  Write(folder_.path() / "sitecustomize.py", "print('hello', end='')\n");
  Set("PYTHONPATH", folder_.path());
  EXPECT_EQ(Describe().problem(), "");
}

TEST_F(PythonFactsTest, AnInterpreterThatIsMissing) {
  request_.set_program("/no/such/python3");
  EXPECT_EQ(Describe().problem(), "/no/such/python3 was not found");
  request_.set_program("no-such-python");
  EXPECT_EQ(Describe().problem(), "no-such-python was not found");
  EXPECT_EQ(Describe().version(), "");
}

TEST_F(PythonFactsTest, AnInterpreterThatFailsIsNamedWithItsLastWords) {
  EXPECT_EQ(DescribeScript("#!/bin/sh\necho first >&2; echo no encodings >&2; exit 1\n").problem(),
            Interpreter() + " ended with status 1: no encodings");
  EXPECT_EQ(DescribeScript("#!/bin/sh\nkill -ABRT $$\n").problem(),
            Interpreter() + " was ended by signal 6");
  EXPECT_EQ(DescribeScript("#!/bin/sh\necho 3.11.2\n").problem(),
            Interpreter() + " ended with status 0, without an answer");
  EXPECT_THAT(DescribeScript("#!/no/such\n").problem(),
              StartsWith(Interpreter() + " cannot be started: "));
}

TEST_F(PythonFactsTest, AnAnswerIsNeverLong) {
  MakeTorch(folder_.path(), std::string(1 << 19, '7'));
  Set("PYTHONPATH", folder_.path());
  EXPECT_EQ(Describe().torch().size(), kLongestFact);
  EXPECT_EQ(DescribeScript("#!/bin/sh\nprintf 'a\\033[2Jb' >&2; exit 1\n").problem(),
            Interpreter() + R"( ended with status 1: a\x1b[2Jb)");
}

TEST_F(PythonFactsTest, AnInterpreterThatDoesNotAnswer) {
  EXPECT_EQ(
      DescribeScript("#!/bin/sh\nexec sleep 600\n", std::chrono::milliseconds(1500)).problem(),
      Interpreter() + " did not answer within 1.5 s");
}

// The deadline counts, not the end of the output.
TEST_F(PythonFactsTest, ItWaitsForTheAnswerAlone) {
  Write(folder_.path() / "sitecustomize.py",
        "import os\nif os.fork() == 0: os.execvp('sleep', "
        "['sleep', '600'])\n");
  Set("PYTHONPATH", folder_.path());
  EXPECT_EQ(Describe().problem(), "");
}

}  // namespace
}  // namespace ds::daemon
