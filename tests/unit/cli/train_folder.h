#pragma once

// TrainFolderTest: what `train` reads of a shared folder, and of files of the user's, in one folder
// of the test's own.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli/train/train_inputs.h"
#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::cli {

class TrainFolderTest : public ::testing::Test {
 protected:
  TrainFolderTest() : share_(folder_.path() / "share") {
    Write("share/configs/default_ds_config.json", R"({"train_micro_batch_size_per_gpu": 2})");
    Write("share/configs/models/gpt2-demo.json", "{}");
    Write("share/demo_corpus.txt", "text");
    Write("data.txt", "words");
  }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
  }
  // Says why two ranks do not train so.
  std::string Error(const TrainFlags& flags) {
    const auto inputs = GatherTrainInputs(flags, share_, 2);
    return inputs.ok() ? "accepted" : inputs.status().message();
  }

  ds::testing::TemporaryFolder folder_;
  ShareFolder share_;
};

}  // namespace ds::cli
