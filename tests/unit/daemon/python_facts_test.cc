#include "daemon/inspect/python_facts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

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
  std::optional<v1::Python> Describe() const { return DescribePython(request_, environment_); }

  const ds::testing::TemporaryFolder folder_;
  v1::PrepareRequest request_;
  std::vector<std::string> environment_ = {"PATH=/usr/bin:/bin"};
};

TEST_F(PythonFactsTest, TheVersionOfPytorchIsReadWithoutAnImport) {
  MakeTorch(folder_.path(), "2.11.0+cpu");
  Set("PYTHONPATH", folder_.path());
  const auto python = Describe();
  ASSERT_TRUE(python.has_value());
  EXPECT_EQ(python->torch(), "2.11.0+cpu");
  EXPECT_EQ("Python " + python->version() + "\n",
            ds::testing::RunProgram({"/usr/bin/python3", "--version"}).out);
}

TEST_F(PythonFactsTest, AFolderOfTheWorkingDirectoryIsNoPackage) {
  MakeTorch(folder_.path(), "1.0");
  request_.set_working_directory(folder_.path());
  const auto python = Describe();
  ASSERT_TRUE(python.has_value());
  EXPECT_NE(python->torch(), "1.0");
}

TEST_F(PythonFactsTest, OutputOfTheEnvironmentIsNoAnswer) {
  Write(folder_.path() / "sitecustomize.py", "print('hello', end='')\n");
  Set("PYTHONPATH", folder_.path());
  EXPECT_TRUE(Describe().has_value());
}

TEST_F(PythonFactsTest, WhoeverIsNoPythonHasNoVersion) {
  request_.set_program("/no/such/python3");
  EXPECT_FALSE(Describe().has_value());
  for (const char* script : {"#!/bin/sh\nexit 1\n", "#!/bin/sh\necho 3.11.2\n", "#!/no/such\n"}) {
    Write(folder_.path() / "python3", script, 0755);
    request_.set_program((folder_.path() / "python3").string());
    EXPECT_FALSE(Describe().has_value()) << script;
  }
}

// The deadline counts, not the end of the output.
TEST_F(PythonFactsTest, ItWaitsForTheAnswerAlone) {
  Write(folder_.path() / "sitecustomize.py",
        "import os\nif os.fork() == 0: os.execvp('sleep', "
        "['sleep', '600'])\n");
  Set("PYTHONPATH", folder_.path());
  EXPECT_TRUE(Describe().has_value());
}

}  // namespace
}  // namespace ds::daemon
