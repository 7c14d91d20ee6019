#include "cli/job/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(UserProgramTest, OnlyPythonProgramsGetAnInterpreter) {
  EXPECT_THAT(MakeUserProgram({}, {"./prog", "a b", ""}).argv, ElementsAre("./prog", "a b", ""));
  EXPECT_THAT(MakeUserProgram({}, {"train.py", "-x"}).argv,
              ElementsAre("python3", "-u", "train.py", "-x"));
  EXPECT_THAT(MakeUserProgram({.python = "/py"}, {"d/train.py"}).argv,
              ElementsAre("/py", "-u", "d/train.py"));
  EXPECT_THAT(MakeUserProgram({.module = true}, {"pkg.train"}).argv,
              ElementsAre("python3", "-u", "-m", "pkg.train"));
  EXPECT_THAT(MakeUserProgram({.no_python = true}, {"train.py"}).argv, ElementsAre("train.py"));
  EXPECT_THAT(MakeUserProgram({}, {}).argv, IsEmpty());
}

TEST(UserProgramTest, TheNativeEngineRunsPythonProgramsInDsrunCompat) {
  const LaunchFlags native{.engine = Engine::kNative};
  EXPECT_THAT(MakeUserProgram(native, {"d/train.py", "-x"}).argv,
              ElementsAre("python3", "-u", "-m", "dsrun.compat", "d/train.py", "-x"));
  EXPECT_EQ(MakeUserProgram(native, {"d/train.py"}).script, "d/train.py");
  EXPECT_THAT(MakeUserProgram({.engine = Engine::kNative, .module = true}, {"pkg"}).argv,
              ElementsAre("python3", "-u", "-m", "dsrun.compat", "-m", "pkg"));
  EXPECT_TRUE(CheckEngine(native, {"train.py"}).ok());
  EXPECT_TRUE(CheckEngine({.engine = Engine::kNative, .module = true}, {"pkg"}).ok());
  EXPECT_TRUE(CheckEngine({}, {"./prog"}).ok());
  EXPECT_EQ(CheckEngine(native, {"./prog", "x.py"}).message(),
            "--engine native is for Python programs (*.py, or -m MODULE), and './prog' is none: "
            "leave the flag out");
}

TEST(UserProgramTest, OnlyAScriptOrModuleHasAnInterpreter) {
  EXPECT_TRUE(MakeUserProgram({}, {"train.py"}).has_interpreter);
  EXPECT_TRUE(MakeUserProgram({.module = true}, {"pkg"}).has_interpreter);
  EXPECT_FALSE(MakeUserProgram({}, {"python3", "train.py"}).has_interpreter);
  EXPECT_FALSE(MakeUserProgram({.no_python = true}, {"train.py"}).has_interpreter);
}

class InterpreterTest : public ::testing::Test {
 protected:
  InterpreterTest() {
    for (const char* name : {"one", "two"})
      std::filesystem::create_directory(folder_.path() / name);
    std::filesystem::create_symlink("/bin/sh", folder_.path() / "two" / "py");
  }
  std::string Find(const std::string& python, const std::string& path) const {
    return FindInterpreter(python, {}, {{{"PATH", path}}, folder_.path()});
  }
  std::string Path(const char* name) const { return (folder_.path() / name).string(); }

  const ds::testing::TemporaryFolder folder_;
};

TEST_F(InterpreterTest, ANameBecomesItsPathHereWithoutResolvingTheLink) {
  EXPECT_EQ(Find("py", "/no/such:" + Path("one") + ":" + Path("two") + ":/bin"), Path("two/py"));
  EXPECT_EQ(Find("py", "two"), Path("two/py")) << "a relative folder is one of this host";
  EXPECT_EQ(Find("sh", "/no/such:/bin"), "/bin/sh");
}

TEST_F(InterpreterTest, WhatIsAPathOrNotHereStaysAsItIs) {
  EXPECT_EQ(Find("./py", Path("two")), "./py");
  EXPECT_EQ(Find("/no/py", Path("two")), "/no/py");
  EXPECT_EQ(Find("py", Path("one")), "py");
  EXPECT_EQ(Find("two", folder_.path()), "two") << "a folder";
  EXPECT_EQ(FindInterpreter("py", {}, {}), "py");
}

TEST_F(InterpreterTest, TheRanksPathComesFirst) {
  const Shell shell{{{"PATH", "/bin"}}, "/"};
  EXPECT_EQ(FindInterpreter("py", {{"PATH", Path("two")}}, shell), Path("two/py"));
  EXPECT_EQ(FindInterpreter("sh", {{"PATH", Path("two")}}, shell), "sh");
}

TEST(IsPythonTest, LooksAtTheLastPartOfThePath) {
  for (const char* name : {"python", "python3", "/usr/bin/python3.12", "./python2"}) {
    EXPECT_TRUE(IsPython(name)) << name;
  }
  for (const char* name :
       {"", "pythonw", "python3/run", "/python3/sh", "ipython", "python3-config"}) {
    EXPECT_FALSE(IsPython(name)) << name;
  }
}

TEST(UserProgramTest, OnlyAScriptIsAFileThatMustBeThere) {
  EXPECT_EQ(MakeUserProgram({}, {"d/train.py", "x.py"}).script, "d/train.py");
  EXPECT_EQ(MakeUserProgram({}, {"./prog", "x.py"}).script, "");
  EXPECT_EQ(MakeUserProgram({.module = true}, {"pkg.py"}).script, "");
  EXPECT_EQ(MakeUserProgram({.no_python = true}, {"train.py"}).script, "");
  EXPECT_EQ(MakeUserProgram({}, {}).script, "");
}

TEST(UserProgramTest, TheLocalRankFollowsTheProgram) {
  EXPECT_EQ(MakeUserProgram({}, {"train.py"}).local_rank_position, 0);
  EXPECT_EQ(MakeUserProgram({.pass_local_rank = true}, {"./prog", "x"}).local_rank_position, 1);
  EXPECT_EQ(MakeUserProgram({.pass_local_rank = true}, {"train.py"}).local_rank_position, 3);
  EXPECT_EQ(MakeUserProgram({.module = true, .pass_local_rank = true}, {"pkg"}).local_rank_position,
            4);
  EXPECT_EQ(MakeUserProgram({.engine = Engine::kNative, .pass_local_rank = true}, {"train.py"})
                .local_rank_position,
            5);
}

}  // namespace
}  // namespace ds::cli
