#include "runtime/offload/bandwidth.h"

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace ds::offload {
namespace {

TEST(MeasureTier, WritesAndReadsAndLeavesNothing) {
  const ds::testing::TemporaryFolder folder;
  const std::int64_t odd_size = (std::int64_t{20} << 20) + 4096;
  const StatusOr<TierSpeed> speed =
      MeasureTier({.folders = {folder.path()}, .io = {.block_bytes = 65536}}, odd_size);
  ASSERT_TRUE(speed.ok()) << speed.status().message();
  EXPECT_GT(speed->write_bytes_per_second, 0);
  EXPECT_GT(speed->read_bytes_per_second, 0);
  EXPECT_EQ(speed->io.block_bytes, 65536);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MeasureTier, NamesErrorsOfAFolder) {
  EXPECT_FALSE(MeasureTier({.folders = {"/nonexistent"}}, 4096).ok());
}

TEST(MeasureTier, ChoosesTheFastestSettingsForReadsAndWrites) {
  const TierSpeed speeds[] = {{.write_bytes_per_second = 1, .read_bytes_per_second = 9},
                              {.write_bytes_per_second = 3, .read_bytes_per_second = 4},
                              {.write_bytes_per_second = 9, .read_bytes_per_second = 1}};
  EXPECT_EQ(&ChooseFastest(speeds), &speeds[1]);
}

TEST(MeasureTier, TriesSettingsThatAConfigTakes) {
  for (const IoOptions& io : ListIoSettings()) {
    EXPECT_EQ(io.block_bytes % 4096, 0);
    EXPECT_GE(io.queue_depth, 1);
    EXPECT_GE(io.threads, 1);
  }
}

}  // namespace
}  // namespace ds::offload
