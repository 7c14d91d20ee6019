#include "cli/commands/bench_tables.h"

#include <gtest/gtest.h>

#include <sstream>

namespace ds::cli {
namespace {

BenchResults Sample() {
  BenchResults results;
  results.job.collectives = {"all_gather", "pt2pt"};
  results.world_size = 2;
  for (const std::string& collective : results.job.collectives) {
    results.steps.push_back({{"step", results.steps.size() + 1},
                             {"collective", collective},
                             {"size_bytes", 67108864},
                             {"elements", 16777216},
                             {"element_bytes", 4},
                             {"seconds", collective == "pt2pt" ? 12.5e-6 : 0.25},
                             {"throughput_gbps", 8.0},
                             {"busbw_gbps", 4.0}});
  }
  return results;
}

TEST(BenchTablesTest, HaveOneTableForEachCollective) {
  EXPECT_EQ(ShowBenchTables(Sample(), BandwidthUnit::kGigabits),
            "\n---- Performance of all_gather on 2 ranks, float32, 5 warm-ups, 50 trials ----\n"
            "Size           Description       Duration      Throughput (Gbps)   BusBW (Gbps)\n"
            "64.0 MiB       16777216x4        250.000 ms    8.000               4.000\n"
            "\n---- Performance of pt2pt on 2 ranks, float32, 5 warm-ups, 50 trials ----\n"
            "Size           Description       Duration      Throughput (Gbps)   BusBW (Gbps)\n"
            "64.0 MiB       16777216x4        12.500 us     8.000               4.000\n");
}

TEST(BenchTablesTest, FitIntoEightyColumnsInEachUnit) {
  const std::string text = ShowBenchTables(Sample(), BandwidthUnit::kGigabytes);
  EXPECT_NE(text.find("(GBps)"), std::string::npos);
  EXPECT_NE(text.find(" 1.000               0.500\n"), std::string::npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(BenchTablesTest, AreOneJsonDocumentOtherwise) {
  const auto document = nlohmann::json::parse(ShowBenchJson(Sample()));
  EXPECT_EQ(document["world_size"], 2);
  EXPECT_EQ(document["trials"], 50);
  ASSERT_EQ(document["collectives"]["pt2pt"].size(), 1U);
  EXPECT_EQ(document["collectives"]["pt2pt"][0]["seconds"], 12.5e-6);
  EXPECT_EQ(document["collectives"]["all_gather"][0]["size_bytes"], 67108864);
}

}  // namespace
}  // namespace ds::cli
