// The example that tells CIFAR-10's images apart with experts, on a data set of its form.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds {
namespace {

using ::testing::HasSubstr;
using testing::RunProgram;

class Cifar10Experts : public ::testing::Test {
 protected:
  static constexpr const char* kEpochs = "6";

  // Noise of 3 x 32 x 32 bytes, in which a class has bright rows of its own.
  static std::string MakeRecords(int count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string records;
    for (int i = 0; i < count; ++i) {
      const int label = static_cast<int>(random() % 10);
      records += static_cast<char>(label);
      for (int at = 0; at < 3 * 32 * 32; ++at) {
        const bool bright = at / 32 % 32 / 3 == label;
        records += static_cast<char>(random() % 56 + (bright ? 200 : 0));
      }
    }
    return records;
  }

  void Write(const std::string& name, const std::string& content) const {
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, content).ok());
  }
  std::string PathOf(const std::string& name) const { return (folder_.path() / name).string(); }

  // Trains on two ranks, which have the experts between them. `flags` are words of the program.
  testing::ProgramResult Run(const std::string& stage,
                             const std::vector<std::string>& flags = {}) const {
    Write("data_batch_1.bin", MakeRecords(1000, 1));
    Write("data_batch_2.bin", MakeRecords(280, 2));
    Write("test_batch.bin", MakeRecords(320, 3));
    Write("ds.json", R"({"train_batch_size": 32,
        "optimizer": {"type": "Adam", "params": {"lr": 0.003}},
        "expert_parallel": {"enabled": true, "autoep_size": 2},
        "zero_optimization": {"stage": )" +
                         stage + "}}");
    std::string run = "run" + stage;
    for (const std::string& flag : flags) run += flag;
    std::vector<std::string> words = {DS_BIN_DIR "/dsrun",
                                      "--num_gpus",
                                      "2",
                                      "--device",
                                      "cpu",
                                      "--run_dir",
                                      PathOf(run),
                                      DS_BIN_DIR "/cifar10_experts",
                                      PathOf("ds.json"),
                                      folder_.path().string()};
    if (flags.empty()) words.push_back(kEpochs);
    words.insert(words.end(), flags.begin(), flags.end());
    return RunProgram(words, {.environment = {"OMP_NUM_THREADS=1"}});
  }

  static double ShareOfRight(const std::string& out) {
    const std::string label = "test images  320  right ";
    const std::size_t place = out.find(label);
    return place == std::string::npos ? -1.0 : std::stod(out.substr(place + label.size()));
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(Cifar10Experts, RanksWithOwnExpertsLearnToClassifyImages) {
  for (const std::string stage : {"0", "2", "3"}) {
    const auto result = Run(stage);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_GT(ShareOfRight(result.out), 0.8) << "stage " << stage << result.out;  // 0.1 by chance
    EXPECT_THAT(result.out, HasSubstr("by expert"));
  }
}

TEST_F(Cifar10Experts, TrainsInEveryDtypeOfTheGuide) {
  for (const std::string dtype : {"fp32", "bf16", "fp16"}) {
    const auto result = Run("0", {"--dtype", dtype, "--epochs", "6", "--moe"});
    EXPECT_EQ(result.status, 0) << dtype << result.out << result.err;
    EXPECT_GT(ShareOfRight(result.out), 0.5) << dtype << result.out;  // 0.1 by chance
  }
}

TEST_F(Cifar10Experts, TakesTheFlagsOfTheGuide) {
  const auto result =
      Run("2", {"--num-experts", "2", "--top-k", "2", "--min-capacity", "4", "--noisy-gate-policy",
                "None", "--mlp-type", "residual", "--log-interval", "10", "--epochs", "1"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 10  loss "));
  const auto refused =
      RunProgram({DS_BIN_DIR "/cifar10_experts", "a", "b", "--noisy-gate-policy", "Loud"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("--noisy-gate-policy Loud: no such flag, or no such value"));
}

TEST_F(Cifar10Experts, NamesErrorsInItsData) {
  Write("ds.json", R"({"train_batch_size": 2})");
  const auto expect_error = [&](const std::string& train, const std::string& test,
                                const std::string& error) {
    Write("data_batch_1.bin", train);
    Write("test_batch.bin", test);
    const auto result =
        RunProgram({DS_BIN_DIR "/cifar10_experts", PathOf("ds.json"), folder_.path().string()});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, HasSubstr(error));
  };
  const std::string four = MakeRecords(4, 1);
  std::string of_class_10 = four;
  of_class_10[2 * 3073] = 10;
  expect_error("pickled", four, "data_batch_1.bin has no records of 3073 bytes");
  expect_error(four, of_class_10, "test_batch.bin: image 2 is of class 10, and there are 10");
  expect_error(four, four.substr(0, 3073), "fewer test images than all ranks process at once");
}

}  // namespace
}  // namespace ds
