#pragma once

// A job that is given to `dsrun check` and to `dsrun train`: both judge it alike.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {

class CheckedJob : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_.path() / name;
    EXPECT_TRUE(MakeDirectories(path.parent_path()).ok());
    EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    return path.string();
  }
  // Expects status 2 and these words of both.
  void ExpectRefused(const std::string& config, const std::vector<std::string>& flags,
                     const std::string& words) const {
    const ProgramResult checked = Run({"check", config, "--num_gpus", "2"}, flags);
    EXPECT_EQ(checked.status, 2) << checked.out << checked.err;
    EXPECT_THAT(checked.err, ::testing::HasSubstr(words));
    const ProgramResult trained =
        Run({"--num_gpus", "2", "--device", "cpu", "--run_dir", (folder_.path() / "run").string(),
             "train", "--deepspeed_config", config},
            flags);
    EXPECT_EQ(trained.status, 2) << trained.err;
    EXPECT_THAT(trained.err, ::testing::HasSubstr(words));
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "run")) << "ranks have been started";
  }
  static ProgramResult Run(std::vector<std::string> words, const std::vector<std::string>& flags) {
    words.insert(words.begin(), DS_BIN_DIR "/dsrun");
    words.insert(words.end(), flags.begin(), flags.end());
    return RunProgram(words);
  }

  const TemporaryFolder folder_;
};

}  // namespace ds::testing
