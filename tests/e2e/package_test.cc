// Installed trees, in another folder than the one that they were installed into: a user's program
// builds against one, each component is complete, and dsrun is a part of another project.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kConsumer[] = R"(cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(dsrun REQUIRED)
find_package(dsrun REQUIRED)  # as a dependency of a dependency
if(DEFINED CMAKE_CXX_STANDARD OR DEFINED LIBTORCH)
  message(FATAL_ERROR "find_package(dsrun) has set a variable of this project")
endif()
add_executable(consumer ")" DS_SOURCE_DIR R"(/runtime/examples/custom_model.cc")
target_link_libraries(consumer PRIVATE dsrun::engine)
)";

constexpr char kParent[] = R"(cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
set(names CMAKE_BUILD_TYPE CMAKE_CXX_EXTENSIONS CMAKE_CXX_FLAGS_RELEASE CMAKE_CXX_COMPILER_LAUNCHER
    CMAKE_CXX_STANDARD CMAKE_EXPORT_COMPILE_COMMANDS CMAKE_MODULE_PATH
    CMAKE_POSITION_INDEPENDENT_CODE CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_UNITY_BUILD)
foreach(name ${names})
  set(before_${name} "${${name}}")
endforeach()
load_cache(")" DS_BUILD_DIR R"(" READ_WITH_PREFIX built_ DS_TORCH_INCLUDE)
set(LIBTORCH ${built_DS_TORCH_INCLUDE}/..)
set(DS_CUDA OFF)
add_subdirectory(")" DS_SOURCE_DIR R"(" dsrun)
foreach(name ${names})
  if(NOT "${${name}}" STREQUAL "${before_${name}}")
    message(SEND_ERROR "dsrun has set ${name} to '${${name}}'")
  endif()
endforeach()
foreach(name COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES LINK_OPTIONS TESTS)
  get_directory_property(value ${name})
  if(value)
    message(SEND_ERROR "dsrun has set ${name} to '${value}'")
  endif()
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/main.cc "int main() {}\n")
add_executable(main ${CMAKE_BINARY_DIR}/main.cc)
target_link_libraries(main PRIVATE dsrun::engine)
)";

class PackageTest : public ::testing::Test {
 protected:
  fs::path folder() const { return folder_.path(); }

  // Installs a component, or everything, and moves the tree.
  fs::path InstallAndMove(const std::string& name, const std::vector<std::string>& flags = {}) {
    const fs::path prefix = folder() / (name + ".installed"), moved = folder() / name;
    std::vector<std::string> words{"cmake", "--install", DS_BUILD_DIR, "--prefix", prefix};
    words.insert(words.end(), flags.begin(), flags.end());
    const auto installed = RunProgram(words);
    EXPECT_EQ(installed.status, 0) << installed.err;
    fs::rename(prefix, moved);
    return moved;
  }

  // Configures a project in <folder>/<name>/build.
  fs::path Configure(const std::string& name, const std::string& project,
                     const std::vector<std::string>& flags = {}) {
    const fs::path source = folder() / name, build = source / "build";
    fs::create_directories(source);
    EXPECT_TRUE(WriteFileAtomically(source / "CMakeLists.txt", project).ok());
    std::vector<std::string> words{"cmake", "-G", "Ninja", "-S", source, "-B", build};
    words.insert(words.end(), flags.begin(), flags.end());
    const auto configured = RunProgram(words);
    EXPECT_EQ(configured.status, 0) << configured.out << configured.err;
    return build;
  }

  void RunJob(const fs::path& tree, const std::vector<std::string>& job) {
    std::vector<std::string> words{tree / "bin/dsrun", "--device", "cpu", "--num_gpus", "2"};
    words.insert(words.end(), job.begin(), job.end());
    const auto ran = RunProgram(words, {.working_directory = folder()});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(PackageTest, AMovedTreeBuildsAProgramAndRunsIt) {
  const fs::path tree = InstallAndMove("tree");
  const fs::path build = Configure("consumer", kConsumer, {"-DCMAKE_PREFIX_PATH=" + tree.string()});
  const auto built = RunProgram({"cmake", "--build", build});
  ASSERT_EQ(built.status, 0) << built.out << built.err;
  RunJob(tree,
         {"run", "--", build / "consumer", tree / "share/dsrun/configs/default_ds_config.json"});
}

TEST_F(PackageTest, RuntimeHasEverythingThatJobsNeed) {
  const fs::path tree = InstallAndMove("runtime", {"--component", "Runtime"});
  EXPECT_FALSE(fs::exists(tree / "include"));
  EXPECT_FALSE(fs::exists(tree / "lib/cmake"));
  for (const char* program : {"dsrun", "dsrund", "dsrank"}) {
    const auto version = RunProgram({tree / "bin" / program, "--version"});
    EXPECT_EQ(version.status, 0) << program << version.err;
  }
  for (const char* page : {"man/man1/dsrun.1", "man/man7/dsrun-quickstart.7",
                           "man/man7/dsrun-ds_config.7", "bash-completion/completions/dsrun",
                           "zsh/site-functions/_dsrun", "fish/vendor_completions.d/dsrun.fish"}) {
    EXPECT_GT(fs::file_size(tree / "share" / page), 0U) << page;
  }
  RunJob(tree, {"train", "--steps", "2"});
  // The plugin for Parquet and Arrow comes along, if the build has it.
  if (!fs::exists(DS_BIN_DIR "/libdsrun_arrow.so")) return;
  const fs::path tokenizer = folder() / "tokenizer", rows = folder() / "rows.bin";
  fs::create_directories(tokenizer);
  fs::copy_file(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/gpt2.tokenizer.json",
                tokenizer / "tokenizer.json");
  const auto tokenized =
      RunProgram({tree / "bin/dsrun", "tokenize",
                  DS_SOURCE_DIR "/tests/unit/tokenizer/arrow_goldens/kinds.parquet", "--field",
                  "coded", "--tokenizer", tokenizer, "--out", rows});
  EXPECT_EQ(tokenized.status, 0) << tokenized.err;
  EXPECT_GT(fs::file_size(rows), 0U);
}

TEST_F(PackageTest, TheTreesOwnLibTorchComesFirst) {
  const fs::path tree = InstallAndMove("runtime", {"--component", "Runtime"});
  const auto list_libraries = [&] {
    return RunProgram({tree / "bin/dsrank"}, {.environment = {"LD_TRACE_LOADED_OBJECTS=1"}}).out;
  };
  const std::string name = "libtorch_cpu.so => ", before = list_libraries();
  const std::size_t begin = before.find(name), end = before.find(" (", begin);
  ASSERT_NE(begin, std::string::npos) << before;
  const fs::path built_with = before.substr(begin + name.size(), end - begin - name.size());
  fs::create_directories(tree / "lib");
  fs::create_directory_symlink(built_with.parent_path().parent_path(), tree / "lib/libtorch");
  const fs::path own = tree / "bin/../lib/libtorch/lib/libtorch_cpu.so";
  EXPECT_THAT(list_libraries(), HasSubstr(name + own.string()));
}

TEST_F(PackageTest, DevelopmentHasNoPrograms) {
  const fs::path tree = InstallAndMove("development", {"--component", "Development"});
  EXPECT_TRUE(fs::exists(tree / "include/dsrun/runtime/engine/engine.h"));
  EXPECT_FALSE(fs::exists(tree / "share"));
  for (const char* program : {"dsrun", "dsrund", "dsrank"}) {
    EXPECT_FALSE(fs::exists(tree / "bin" / program)) << program;
  }
}

// scripts/run.sh leaves the CUDA plugin out on a host that has nvcc and no driver.
TEST_F(PackageTest, InstallsWithoutPluginsThatAreNotBuilt) {
  const fs::path script = folder() / "install.cmake", prefix = folder() / "prefix";
  auto rules = ReadFile(DS_BUILD_DIR "/cmake_install.cmake");
  ASSERT_TRUE(rules.ok());
  const std::string plugin = DS_BIN_DIR "/libdsrun_";
  for (std::size_t at = 0; (at = rules->find(plugin, at)) != std::string::npos;) {
    rules->replace(at, plugin.size(), DS_BIN_DIR "/absent/libdsrun_");
  }
  ASSERT_TRUE(WriteFileAtomically(script, *rules).ok());
  const auto installed = RunProgram({"cmake", "-DCMAKE_INSTALL_PREFIX=" + prefix.string(),
                                     "-DCMAKE_INSTALL_COMPONENT=Runtime", "-P", script});
  EXPECT_EQ(installed.status, 0) << installed.err;
  EXPECT_TRUE(fs::exists(prefix / "bin/dsrun"));
}

TEST_F(PackageTest, AnotherProjectKeepsItsSettings) {
  const fs::path build = Configure("parent", kParent);
  const auto rules = ReadFile(build / "build.ninja");
  ASSERT_TRUE(rules.ok());
  for (const char* flag : {"-Wall", "-g1", "-fuse-ld", "ccache"}) {
    EXPECT_THAT(*rules, Not(HasSubstr(flag)));
  }
  const auto installs = ReadFile(build / "dsrun/cmake_install.cmake");
  ASSERT_TRUE(installs.ok());
  EXPECT_THAT(*installs, Not(HasSubstr("file(INSTALL")));
}

}  // namespace
}  // namespace ds::testing
