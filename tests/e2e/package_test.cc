// A C++ user's way: install, find_package(dsrun), build a program of one's own against it.

#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;

constexpr char kProject[] = R"(cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(dsrun REQUIRED)
add_executable(consumer consumer.cc)
target_link_libraries(consumer PRIVATE ds_config)
)";

constexpr char kProgram[] = R"cc(#include "runtime/config/file/check_config.h"
                                 int main() {
                                   return ds::config::CheckConfig(R"({"train_batch_size": 8})", "inline", 2).ok ? 0 : 1;
                                 }
)cc";

TEST(PackageTest, InstalledPackageBuildsAProgram) {
  TemporaryFolder folder;
  const std::string prefix = (folder.path() / "prefix").string();
  const std::string source = (folder.path() / "source").string();
  const std::string build = (folder.path() / "build").string();
  const auto installed = RunProgram({"cmake", "--install", DS_BUILD_DIR, "--prefix", prefix});
  ASSERT_EQ(installed.status, 0) << installed.err;
  for (const char* program : {"dsrun", "dsrund", "dsrank"}) {
    const auto version = RunProgram({prefix + "/bin/" + program, "--version"});
    EXPECT_EQ(version.status, 0) << program << version.err;
  }
  // What reads Parquet and Arrow comes along, where the build has it.
  const fs::path tokenizer = folder.path() / "tokenizer", rows = folder.path() / "rows.bin";
  fs::create_directories(tokenizer);
  fs::copy_file(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/gpt2.tokenizer.json",
                tokenizer / "tokenizer.json");
  const auto tokenized =
      RunProgram({prefix + "/bin/dsrun", "tokenize",
                  DS_SOURCE_DIR "/tests/unit/tokenizer/arrow_goldens/kinds.parquet", "--field",
                  "coded", "--tokenizer", tokenizer, "--out", rows});
  if (fs::exists(DS_BIN_DIR "/libdsrun_arrow.so")) {
    EXPECT_EQ(tokenized.status, 0) << tokenized.err;
    EXPECT_GT(fs::file_size(rows), 0U);
  }
  for (const char* page : {"man/man1/dsrun.1", "man/man7/dsrun-quickstart.7",
                           "man/man7/dsrun-ds_config.7", "bash-completion/completions/dsrun",
                           "zsh/site-functions/_dsrun", "fish/vendor_completions.d/dsrun.fish"}) {
    EXPECT_GT(fs::file_size(prefix + "/share/" + page), 0U) << page;
  }
  fs::create_directories(source);
  ASSERT_TRUE(WriteFileAtomically(source + "/CMakeLists.txt", kProject).ok());
  ASSERT_TRUE(WriteFileAtomically(source + "/consumer.cc", kProgram).ok());
  const auto configured = RunProgram(
      {"cmake", "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_PREFIX_PATH=" + prefix});
  ASSERT_EQ(configured.status, 0) << configured.out << configured.err;
  const auto built = RunProgram({"cmake", "--build", build});
  ASSERT_EQ(built.status, 0) << built.out << built.err;
  EXPECT_EQ(RunProgram({build + "/consumer"}).status, 0);
}

}  // namespace
}  // namespace ds::testing
