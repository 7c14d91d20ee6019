#include "runtime/config/memory_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/unit/config/goldens.h"

namespace ds::config {
namespace {

using ::testing::HasSubstr;

TEST(EstimateMemoryTest, EqualsTheReferenceToTheByte) {
  int rows_seen = 0;
  for (const auto& golden : ReadGolden("memory_estimates.json")) {
    SCOPED_TRACE(golden.dump());
    const auto rows = EstimateMemory({.params = golden[0],
                                      .largest_layer_params = golden[1],
                                      .num_gpus_per_node = golden[2],
                                      .num_nodes = golden[3]});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    ASSERT_EQ(rows->size(), golden[4].size());
    for (std::size_t i = 0; i < rows->size(); ++i) {
      const auto& row = golden[4][i];
      EXPECT_EQ((*rows)[i], (MemoryRow{row[0], row[1], row[2], row[3], row[4], row[5]})) << i;
      ++rows_seen;
    }
  }
  EXPECT_EQ(rows_seen, 1280);
}

// The published table of T0_3B on one GPU, in GiB.
TEST(EstimateMemoryTest, TheDocumentedExample) {
  const auto rows = EstimateMemory({.params = 2783959040, .largest_layer_params = 65798144});
  ASSERT_TRUE(rows.ok());
  std::string text;
  for (const MemoryRow& row : *rows) {
    if (row.stage != 3) continue;
    char line[40];
    std::snprintf(line, sizeof line, "%.2f %.2f\n", static_cast<double>(row.cpu_bytes) / (1 << 30),
                  static_cast<double>(row.gpu_bytes) / (1 << 30));
    text += line;
  }
  EXPECT_EQ(text, "70.00 0.25\n70.00 0.25\n62.23 5.43\n62.23 5.43\n0.37 46.91\n15.56 46.91\n");
}

std::string EstimateError(const MemoryQuestion& question) {
  const auto rows = EstimateMemory(question);
  return rows.ok() ? "estimated" : rows.status().message();
}

TEST(EstimateMemoryTest, NamesTheNumberThatIsWrong) {
  EXPECT_THAT(EstimateError({.params = 0, .largest_layer_params = 1}),
              HasSubstr("parameters must be"));
  EXPECT_THAT(EstimateError({.params = 9, .largest_layer_params = 0}),
              HasSubstr("largest layer must be"));
  EXPECT_EQ(EstimateError({.params = 9, .largest_layer_params = 10}),
            "the largest layer has more parameters (10) than the model (9)");
  EXPECT_THAT(EstimateError({.params = 9, .largest_layer_params = 9, .num_gpus_per_node = 0}),
              HasSubstr("GPUs per node must be between 1 and 4096, not 0"));
  EXPECT_THAT(EstimateError({.params = 9, .largest_layer_params = 9, .num_nodes = -1}),
              HasSubstr("nodes must be between 1 and 1048576, not -1"));
  EXPECT_THAT(EstimateError({.params = 100'000'000'000'000,
                             .largest_layer_params = 1,
                             .num_gpus_per_node = 4096,
                             .num_nodes = 1 << 20}),
              HasSubstr("more than 8 EiB"));
}

}  // namespace
}  // namespace ds::config
