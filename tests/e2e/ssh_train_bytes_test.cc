// What a step of training sends between two hosts, held against a formula for each stage, over
// links as fast as they are and over emulated ones.

#include <gmock/gmock.h>

#include <map>
#include <regex>
#include <sstream>
#include <utility>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/ssh_train_job.h"

namespace ds::testing {
namespace {

using ::testing::ElementsAreArray;

// gpt2-demo: two embeddings, four layers, the last norm; its head is the token embedding.
constexpr double kParameters = 256 * 128 + 256 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128;

// Bytes that a step of fp32 training, one micro-batch, sends between two hosts, both ways together,
// however many ranks they have. Every parameter is 4 bytes of gradient, whose sums go from the
// first host to the last. The results go back: all of them at stage 0, those of the first host's
// shard at the others, where each host then sends its half of the parameters: behind the update at
// stages 1 and 2, before both passes at stage 3.
double BytesOfStep(int stage) {
  const double all = 4 * kParameters;
  if (stage == 0) return 2 * all;
  const double reduced = all + all / 2;
  const int gathers = stage == 3 ? 2 : 1;
  return reduced + gathers * all;
}

class SshTrainBytesTest : public SshTrainJob {
 protected:
  void SetUp() override {
    SshTrainJob::SetUp();
    if (!IsSkipped() && !hosts().namespaces()) SkipWithout("namespaces", hosts().why_not());
  }

  // Bytes to other hosts: what the ranks say, and what the interfaces of both hosts have counted,
  // but for the headers of packets.
  struct Bytes {
    double said = 0;
    double counted = 0;
  };

  double CountedSoFar(const std::string& interface = "eth0") {
    // Of Ethernet, IP and TCP with its timestamps.
    constexpr double kHeaders = 14 + 20 + 20 + 12;
    double bytes = 0;
    for (const int host : {0, 1}) {
      // Behind the name: eight numbers of what came, then the bytes and packets that went.
      std::istringstream numbers(OnHost(host, "sed -n 's/.*" + interface + "://p' /proc/net/dev"));
      double sent = 0, packets = 0;
      for (int i = 0; i < 9; ++i) numbers >> sent;
      EXPECT_TRUE(numbers >> packets) << "host " << host;
      bytes += sent - kHeaders * packets;
    }
    return bytes;
  }

  Bytes BytesOfJob(int slots, const std::vector<std::string>& words) {
    WriteHostfile(slots);
    Bytes bytes{.counted = -CountedSoFar()};
    const ProgramResult result = RunJob(OnHosts(words, {"-x", "DSRUN_LOG_LEVEL=debug"}));
    EXPECT_EQ(result.status, 0) << result.err;
    bytes.counted += CountedSoFar();
    const std::regex said("sent ([0-9]+) bytes to other hosts");
    for (int rank = 0; rank < 2 * slots; ++rank) {
      const auto log =
          ReadFile(job() / "logs" / "0" / ("rank-0000" + std::to_string(rank) + ".err"));
      std::smatch match;
      EXPECT_TRUE(log.ok() && std::regex_search(*log, match, said)) << "rank " << rank;
      if (!match.empty()) bytes.said += std::stod(match[1]);
    }
    return bytes;
  }

  // Of a step; the job of six steps is the last one. What daemons say is little beside it.
  Bytes ExpectBytes(int slots, int stage, bool bf16, double expected) {
    SCOPED_TRACE(std::to_string(slots) + " ranks on each host, stage " + std::to_string(stage));
    const Bytes few = BytesOfJob(slots, Train(stage, bf16, 2));
    const Bytes many = BytesOfJob(slots, Train(stage, bf16, 6));
    const Bytes step{.said = (many.said - few.said) / 4,
                     .counted = (many.counted - few.counted) / 4};
    EXPECT_NEAR(step.said, expected, 0.03 * expected);
    EXPECT_NEAR(step.counted, expected, 0.03 * expected) << "on the wire";
    return step;
  }
  void ExpectBytes(int slots, int stage) { ExpectBytes(slots, stage, false, BytesOfStep(stage)); }

  // What a step of the job that was last has put through calls of a kind, on rank 0.
  double SaidOfKind(const std::string& kind) {
    const nlohmann::json last = ReadJsonLines(job() / "metrics.jsonl").back();
    const nlohmann::json kinds = last["communicated"];
    return kinds.contains(kind) ? kinds[kind]["bytes"].get<double>() : 0.0;
  }
};

TEST_F(SshTrainBytesTest, AStepSendsTheBytesOfTheFormulaOfItsStage) {
  WriteHostfile(1);
  ASSERT_EQ(RunJob(OnHosts(Train(0, false, 1))).status, 0);  // it brings the daemon to the hosts
  for (const int slots : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) ExpectBytes(slots, stage);
  }
}

TEST_F(SshTrainBytesTest, TheChosenInterfaceCarriesThem) {
  constexpr int kSteps = 6;
  hosts().AddNetwork();
  WriteHostfile(1);
  const std::vector<std::string> words = Train(0, false, kSteps);
  ASSERT_EQ(RunJob(OnHosts(words)).status, 0);  // it brings the daemon to the hosts
  const std::vector<std::pair<std::string, std::vector<std::string>>> choices = {
      {"eth1", {"--interface", "eth1"}},
      {"eth0", {"--interface", "eth0"}},
      {"eth1", {"-x", "DSRUN_INTERFACE=eth1"}}};
  for (const auto& [chosen, flags] : choices) {
    SCOPED_TRACE(flags[0] + " " + flags[1]);
    const std::string other = chosen == "eth0" ? "eth1" : "eth0";
    double carried = -CountedSoFar(chosen), by_other = -CountedSoFar(other);
    ASSERT_EQ(RunJob(OnHosts(words, flags)).status, 0);
    carried += CountedSoFar(chosen);
    by_other += CountedSoFar(other);
    EXPECT_GT(carried, 0.99 * kSteps * BytesOfStep(0));
    EXPECT_LT(by_other, 0.1 * carried) << "what daemons say";
  }
}

TEST_F(SshTrainBytesTest, SeveralInterfacesCarryThemTogether) {
  constexpr int kSteps = 6;
  hosts().AddNetwork();
  WriteHostfile(1);
  const std::vector<std::string> words = Train(0, false, kSteps);
  ASSERT_EQ(RunJob(OnHosts(words)).status, 0);  // it brings the daemon to the hosts
  const std::vector<double> losses = Losses();
  std::vector<std::string> encrypted = words;
  encrypted.push_back("--encrypt");
  for (const auto& [flags, job] :
       {std::pair(std::vector<std::string>{"--interface", "eth0,eth1"}, words),
        std::pair(std::vector<std::string>{"-x", "DSRUN_INTERFACE=eth1,eth0"}, words),
        std::pair(std::vector<std::string>{"--interface", "eth0,eth1"}, encrypted)}) {
    SCOPED_TRACE(flags[0] + " " + flags[1] + " " + job.back());
    std::map<std::string, double> carried;
    for (const std::string interface : {"eth0", "eth1"})
      carried[interface] -= CountedSoFar(interface);
    ASSERT_EQ(RunJob(OnHosts(job, flags)).status, 0);
    for (const std::string interface : {"eth0", "eth1"}) {
      carried[interface] += CountedSoFar(interface);
      EXPECT_NEAR(carried[interface], kSteps * BytesOfStep(0) / 2, 0.1 * kSteps * BytesOfStep(0))
          << interface;
    }
    EXPECT_THAT(Losses(), ElementsAreArray(losses));
  }
}

// Bytes of a step at stage 3 in bf16 for each parameter: a sum goes on in fp32, half of the means
// come back, and both passes gather.
constexpr double kNarrowBytes = 4 + 2.0 / 2 + 2 * 2;

// All of ZeRO++ in bf16. Matrices are gathered between hosts once, in 8 bits, and their gradients,
// added up within the hosts, go from each rank to its like on the other host in 4 bits; biases and
// norms, a hundredth, travel as they are.
TEST_F(SshTrainBytesTest, ZeroPlusPlusSendsAQuarterAndLearnsTheSame) {
  constexpr int kSteps = 20;
  constexpr double kBlock = 2048, kWithScale = (kBlock + 4) / kBlock;
  WriteHostfile(2);
  const Bytes plain = ExpectBytes(2, 3, /*bf16=*/true, kNarrowBytes * kParameters);
  const double gathered = SaidOfKind("all_gather"), reduced = SaidOfKind("reduce_scatter");
  EXPECT_EQ(RunJob(OnHosts(Train(3, /*bf16=*/true, kSteps))).status, 0);
  const std::vector<double> losses = Losses();
  zero_ = {{"zero_quantized_weights", true},
           {"zero_quantized_gradients", true},
           {"zero_hpz_partition_size", 2}};
  constexpr double kVectors = 4 * 13 * 128 + 2 * 128;
  const double expected =
      (kParameters - kVectors) * kWithScale * (1.0 + 0.5) + kVectors * kNarrowBytes;
  const Bytes rounded = ExpectBytes(2, 3, /*bf16=*/true, expected);
  EXPECT_LT(rounded.said, 0.25 * plain.said);
  EXPECT_LT(rounded.counted, 0.25 * plain.counted);
  // Of the two gathers of a pass one stays within the host, as it is.
  EXPECT_NEAR(SaidOfKind("all_gather"), gathered * (0.5 + 0.5 / 2), 0.05 * gathered);
  EXPECT_LT(SaidOfKind("reduce_scatter"), 0.05 * reduced) << "biases and norms";
  EXPECT_GT(SaidOfKind("all_to_all"), 0.0);
  EXPECT_EQ(RunJob(OnHosts(Train(3, /*bf16=*/true, kSteps))).status, 0);
  const std::vector<double> rounded_losses = Losses();
  ASSERT_EQ(rounded_losses.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_LT(rounded_losses[i], 1.04 * losses[i]) << "step " << i + 1;
  }
  EXPECT_NEAR(rounded_losses.back(), losses.back(), 0.04 * losses.back());
  EXPECT_LT(rounded_losses.back(), 0.8 * rounded_losses.front());
}

TEST_F(SshTrainBytesTest, ThinLinksChangeNeitherBytesNorLosses) {
  std::vector<std::vector<double>> losses;
  WriteHostfile(1);
  for (const int stage : {0, 1, 2, 3}) {
    ASSERT_EQ(RunJob(OnHosts(Train(stage, false, 6))).status, 0);
    losses.push_back(Losses());
  }
  for (const std::uint64_t megabits : {10'000, 1'000}) {
    SCOPED_TRACE(std::to_string(megabits) + " Mbit/s");
    hosts().Slow(1, {.bytes_per_second = megabits * 1'000'000 / 8});
    for (const int stage : {0, 1, 2, 3}) {
      ExpectBytes(1, stage);
      EXPECT_THAT(Losses(), ElementsAreArray(losses[stage]));
    }
  }
}

}  // namespace
}  // namespace ds::testing
