#include "runtime/config/sections/offload_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config/file/check_config.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CheckResult CheckOffload(const std::string& members) {
  return CheckConfig("{train_batch_size: 8, optimizer: {type: \"AdamW\"}, " + members + "}",
                     "ds.json", 2);
}

TEST(OffloadSection, FillsWhatTheRuntimeReads) {
  const CheckResult result = CheckOffload(R"(
      zero_optimization: {
        stage: 3, sub_group_size: 1000000,
        offload_param: {device: "nvme", nvme_path: "/a", buffer_count: 7, buffer_size: 8000,
                        max_in_cpu: 9},
        offload_optimizer: {device: "nvme", nvme_path: "/a,/b", buffer_count: 3,
                            pipeline_read: true, pipeline_write: true, ratio: 0.25}},
      aio: {block_size: 65536, queue_depth: 32, intra_op_parallelism: 2, single_submit: true,
            overlap_events: false})");
  ASSERT_THAT(Messages(result.errors), IsEmpty());
  const ZeroConfig& zero = result.config.zero_optimization;
  EXPECT_EQ(zero.sub_group_size, 1'000'000);
  EXPECT_EQ(zero.offload_param.device, OffloadDevice::kNvme);
  EXPECT_THAT(zero.offload_param.nvme_path, ElementsAre("/a"));
  EXPECT_EQ(zero.offload_param.buffer_count, 7);
  EXPECT_EQ(zero.offload_param.buffer_size, 8000);
  EXPECT_EQ(zero.offload_param.max_in_cpu, 9);
  EXPECT_EQ(zero.offload_optimizer.device, OffloadDevice::kNvme);
  EXPECT_THAT(zero.offload_optimizer.nvme_path, ElementsAre("/a", "/b"));
  EXPECT_EQ(zero.offload_optimizer.buffer_count, 3);
  EXPECT_TRUE(zero.offload_optimizer.pipeline_read && zero.offload_optimizer.pipeline_write);
  EXPECT_EQ(zero.offload_optimizer.ratio, 0.25);
  const AioConfig& aio = result.config.aio;
  EXPECT_EQ(aio.block_size, 65536);
  EXPECT_EQ(aio.queue_depth, 32);
  EXPECT_EQ(aio.intra_op_parallelism, 2);
  EXPECT_TRUE(aio.single_submit);
  EXPECT_FALSE(aio.overlap_events);
}

TEST(OffloadSection, TakesTheOldNames) {
  const CheckResult result =
      CheckOffload("zero_optimization: {stage: 3, cpu_offload: true, cpu_offload_param: true}");
  ASSERT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_EQ(result.config.zero_optimization.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(result.config.zero_optimization.offload_param.device, OffloadDevice::kCpu);
}

TEST(OffloadSection, RefusesAListOfFoldersWithAGap) {
  const CheckResult result = CheckOffload(
      "zero_optimization: {stage: 1, offload_optimizer: {device: \"nvme\", nvme_path: "
      "\"/a,,/b\"}}");
  EXPECT_THAT(Messages(result.errors), ElementsAre(HasSubstr("or several separated by commas")));
}

TEST(OffloadSection, RefusesGpuDirectStorageByName) {
  EXPECT_THAT(Messages(CheckOffload("aio: {use_gds: true}").errors),
              ElementsAre(HasSubstr("GPUDirect Storage is not built")));
}

}  // namespace
}  // namespace ds::config
