#include "cli/train/check_folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/files.h"
#include "runtime/checkpoint_format/safetensors_layout.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CheckFoldersTest : public ::testing::Test {
 protected:
  std::string Error(const std::string& own_output = "") const {
    const config::TrainJob job{.save_hf_dir = folder_.path() / "out"};
    return CheckFolders({.job = job, .own_output = own_output}).message();
  }
  void Write(const char* name) const {
    fs::create_directories(folder_.path() / "out");
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / "out" / name, "{}").ok());
  }
  const ds::testing::TemporaryFolder folder_;
};

TEST_F(CheckFoldersTest, AModelOfAnotherRunIsNotReplaced) {
  EXPECT_EQ(Error(), "");
  Write("config.json");
  EXPECT_EQ(Error(), "") << "a description alone is no model";
  for (const char* weights : {"model.safetensors", "model.safetensors.index.json",
                              "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    Write(weights);
    EXPECT_THAT(Error(), HasSubstr("out holds a model that dsrun has not written"));
    fs::remove(folder_.path() / "out" / weights);
  }
  Write("adapter_config.json");
  EXPECT_THAT(Error(), HasSubstr("has an adapter (adapter_config.json)"));
}

// As of a file server that has gone: the end of the job would replace the model when it is back.
TEST_F(CheckFoldersTest, AModelThatCannotBeReachedIsNotAbsent) {
  fs::create_directories(folder_.path() / "out");
  fs::create_symlink("pytorch_model.bin", folder_.path() / "out/pytorch_model.bin");  // to itself
  EXPECT_THAT(Error(), HasSubstr("pytorch_model.bin: Too many levels of symbolic links"));
}

// A command that is repeated writes its folder again.
TEST_F(CheckFoldersTest, AModelThatDsrunWroteIsReplaced) {
  const auto write = [&](const char* name, const std::string& header) {
    std::string text(8, '\0');
    text[0] = static_cast<char>(header.size());
    fs::create_directories(folder_.path() / "out");
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / "out" / name, text + header).ok());
  };
  write("model.safetensors", std::string(checkpoint::kSafetensorsMark) + "}");
  EXPECT_EQ(Error(), "");
  EXPECT_TRUE(*HoldsExport(folder_.path() / "out"));
  write("model.safetensors", R"({"__metadata__":{"format":"pt"}})");
  EXPECT_THAT(Error(), HasSubstr("holds a model that dsrun has not written"));
}

TEST_F(CheckFoldersTest, AResumedRunWritesItsOwnFolderAgain) {
  Write("config.json");
  Write("model.safetensors");
  EXPECT_EQ(Error(folder_.path() / "out"), "");
  EXPECT_THAT(Error(folder_.path() / "other"), HasSubstr("name another folder, or move"));
}

}  // namespace
}  // namespace ds::cli
