// Python programs of several hosts run with one interpreter: that of the environment which is
// activated where dsrun is called.

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/e2e/ssh_job.h"

namespace ds::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SshPythonTest : public SshJob {
 protected:
  // An activated environment here, and on every host a program that says where it runs.
  void SetUp() override {
    SshJob::SetUp();
    if (IsSkipped()) return;
    if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
    WriteHostfile(1);
    RunProgram({"/usr/bin/python3", "-m", "venv", "--without-pip", environment()});
    environment_ = {"VIRTUAL_ENV=" + environment(),
                    "PATH=" + environment() + "/bin:/usr/local/bin:/usr/bin:/bin"};
    for (int i = 0; i < 2; ++i) {
      OnHost(i,
             "echo 'import os, sys; print(\"rank\", os.environ[\"RANK\"], sys.executable, "
             "sys.prefix)' >/tmp/where.py");
    }
  }
  std::string environment() const { return (folder() / "env").string(); }
  void MakeEnvironment(int host) {
    OnHost(host, "/usr/bin/python3 -m venv --without-pip " + environment());
  }
  // What nobody may import.
  void MakeTorch(int host, const std::string& version) {
    OnHost(host, "cd " + environment() +
                     "/lib/python3*/site-packages && mkdir torch && echo 'raise 1' "
                     ">torch/__init__.py && echo '__version__ = \"" +
                     version + "\"' >torch/version.py");
  }
  ProgramResult RunPython(const std::vector<std::string>& flags = {}) {
    std::vector<std::string> command = Command(flags, "");
    command.resize(command.size() - 3);
    command.emplace_back("/tmp/where.py");
    std::vector<std::string> variables = hosts().Environment();
    variables.insert(variables.end(), environment_.begin(), environment_.end());
    return RunProgram(command, {.environment = variables, .working_directory = folder()});
  }
};

TEST_F(SshPythonTest, TheActivatedEnvironmentIsUsedOnEveryHost) {
  for (int i = 0; i < 2; ++i) MakeEnvironment(i);
  const ProgramResult result = RunPython();
  EXPECT_EQ(result.status, 0) << result.err;
  const std::string place = environment() + "/bin/python3 " + environment() + "\n";
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 " + place), HasSubstr("rank 1 " + place)));
  EXPECT_THAT(result.err, Not(HasSubstr("the hosts differ")));
}

TEST_F(SshPythonTest, AHostWithoutItRefusesTheJob) {
  MakeEnvironment(0);
  const ProgramResult result = RunPython();
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(HasSubstr("host h1"), HasSubstr(environment() + "/bin/python3"),
                                HasSubstr("name one that all hosts have with --python")));
  const ProgramResult named = RunPython({"--python", "/usr/bin/python3"});
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_THAT(named.out, HasSubstr("rank 1 /usr/bin/python3 /usr\n"));
}

TEST_F(SshPythonTest, DifferentVersionsOfPytorchAreShown) {
  for (int i = 0; i < 2; ++i) {
    MakeEnvironment(i);
    MakeTorch(i, "2.1" + std::to_string(i) + ".0+cpu");
  }
  const ProgramResult result = RunPython();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("the hosts differ: h0 has Python 3"),
                                HasSubstr(" with torch 2.10.0+cpu, h1 has Python 3"),
                                HasSubstr(" with torch 2.11.0+cpu")));
}

}  // namespace
}  // namespace ds::testing
