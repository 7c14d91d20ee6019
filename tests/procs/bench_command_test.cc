// `dsrun bench comm` with real ranks on this host, and `dsrun bench io`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class BenchCommandTest : public ::testing::Test {
 protected:
  ProgramResult Bench(int ranks, std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", std::to_string(ranks),
                  "bench", "comm", "--trials", "2", "--warmups", "1", "--max_size", "4K"});
    return RunProgram(flags, {.working_directory = folder_.path()});
  }

  TemporaryFolder folder_;
};

TEST_F(BenchCommandTest, PrintsATableForEachCollectiveAndItsProgress) {
  const ProgramResult result = Bench(2, {});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* collective :
       {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "pt2pt"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("Performance of ") + collective + " on 2 ranks"));
  }
  EXPECT_THAT(result.out, HasSubstr("step 18/18"));
  EXPECT_THAT(result.out, Not(HasSubstr("checkpoints")));
}

TEST_F(BenchCommandTest, PrintsOneJsonDocumentAndNothingElse) {
  const ProgramResult result =
      Bench(3, {"--json", "--all_gather", "--pt2pt", "--dtype", "bfloat16"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(document.is_discarded()) << result.out;
  EXPECT_EQ(document["world_size"], 3);
  ASSERT_EQ(document["collectives"].size(), 2U);
  ASSERT_EQ(document["collectives"]["all_gather"].size(), 3U);
  const auto& first = document["collectives"]["all_gather"][0];
  EXPECT_EQ(first["size_bytes"], 1020) << "parts of three ranks are equal";
  EXPECT_EQ(first["elements"], 510);
  const double rate = 3 * 1020 * 8 / first["seconds"].get<double>() / 1e9;
  EXPECT_NEAR(first["throughput_gbps"].get<double>(), rate, 1e-9 * rate);
}

class BenchIoTest : public ::testing::Test {
 protected:
  ProgramResult Bench(std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {DS_BIN_DIR "/dsrun", "bench", "io", folder_.path().string(), "--size", "1"});
    return RunProgram(flags, {});
  }

  TemporaryFolder folder_;
};

TEST_F(BenchIoTest, PrintsOneJsonDocumentWithAnAioSection) {
  const ProgramResult result = Bench({"--json", "--block_size", "65536", "--no_io_uring"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(document.is_discarded()) << result.out;
  EXPECT_EQ(document["requests_by"], "threads");
  EXPECT_GT(document["fastest"]["read_gb_per_second"], 0);
  EXPECT_EQ(document["folders"][0]["folder"], folder_.path().string());
  EXPECT_EQ(document["aio"], nlohmann::json({{"block_size", 65536},
                                             {"queue_depth", 8},
                                             {"intra_op_parallelism", 1},
                                             {"single_submit", false},
                                             {"overlap_events", true}}));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(BenchIoTest, SweepsAndNamesASection) {
  const ProgramResult result = Bench({"--sweep"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("write GB/s"));
  EXPECT_THAT(result.out, HasSubstr("for the ds_config:\n{\n  \"aio\": {"));
}

TEST(BenchMemory, PrintsOneJsonDocument) {
  const ProgramResult result = RunProgram(
      {DS_BIN_DIR "/dsrun", "bench", "memory", "--size", "4", "--threads", "2", "--json"}, {});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(document.is_discarded()) << result.out;
  ASSERT_EQ(document["results"].size(), 1u);
  EXPECT_EQ(document["results"][0]["threads"], 2);
  EXPECT_GT(document["results"][0]["gb_per_second"], 0);
}

TEST(BenchMemory, PrintsALineForEachNumberOfThreads) {
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "bench", "memory", "--size", "4"}, {});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::StartsWith("threads      GB/s  GB/s a thread\n      1  "));
}

TEST_F(BenchIoTest, RefusesAFolderThatIsNotThere) {
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "bench", "io", "/nonexistent/drive"}, {});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("/nonexistent/drive on host "));
}

}  // namespace
}  // namespace ds::testing
