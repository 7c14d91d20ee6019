#include "runtime/config/sections/sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(OffloadSection, FillsTheFieldsThatTheRuntimeReads) {
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

TEST(OffloadSection, UpdatesInTheBackwardPassNeedNoOtherBlock) {
  const std::string offload =
      "zero_optimization: {stage: 2, offload_optimizer: {device: \"cpu\", super_offload: true}}\n";
  const CheckResult plain = CheckWith(offload + "gradient_clipping: 0");
  ASSERT_THAT(Messages(plain.errors), IsEmpty());
  EXPECT_TRUE(plain.config.zero_optimization.offload_optimizer.super_offload);
  const auto expect_refused = [&](const std::string& members, const char* message) {
    EXPECT_THAT(Messages(CheckWith(offload + members).errors), ElementsAre(HasSubstr(message)));
  };
  for (const char* known_later : {"", "fp16: {enabled: true}", "bf16: {enabled: true}"}) {
    EXPECT_THAT(Messages(CheckWith(offload + known_later).errors), IsEmpty()) << known_later;
  }
  const std::string unclipped = "gradient_clipping: 0\n";
  expect_refused(unclipped + "managed_gradient_accumulation: false", "must be true");
  EXPECT_THAT(Messages(CheckWith(unclipped + "zero_optimization: {stage: 2, "
                                             "ignore_unused_parameters: false, offload_optimizer: "
                                             "{device: \"cpu\", super_offload: true}}")
                           .errors),
              ElementsAre(HasSubstr("ignore_unused_parameters must be true")));
  expect_refused(unclipped + "optimizer: {type: \"Muon\"}", "optimizer.type must be Adam");
  EXPECT_THAT(Messages(CheckWith(unclipped + "zero_optimization: {stage: 2, offload_optimizer: "
                                             "{super_offload: true}}")
                           .errors),
              ElementsAre(HasSubstr("needs offload_optimizer.device")));
}

// DeepSpeed's default is not the runtime's: one that is written out is meant.
TEST(OffloadSection, UpdatesHaveCoresOfTheirOwnWhereTheKeyIsWrittenOut) {
  const auto check = [](const std::string& members) {
    return CheckWith("zero_optimization: {stage: 2, offload_optimizer: {device: \"cpu\"" + members +
                     "}}\ngradient_clipping: 0");
  };
  const CheckResult plain = check(", super_offload: true");
  EXPECT_FALSE(plain.config.zero_optimization.offload_optimizer.update_cores.has_value());
  EXPECT_FALSE(
      plain.resolved["zero_optimization"]["offload_optimizer"].contains("cpuadam_cores_perc"));
  const CheckResult written = check(", super_offload: true, cpuadam_cores_perc: 0.8");
  EXPECT_EQ(written.config.zero_optimization.offload_optimizer.update_cores, 0.8);
  EXPECT_EQ(written.resolved["zero_optimization"]["offload_optimizer"]["cpuadam_cores_perc"], 0.8);
  EXPECT_THAT(
      Messages(check(", cpuadam_cores_perc: 0.5").warnings),
      ::testing::Contains(HasSubstr("has no effect while "
                                    "zero_optimization.offload_optimizer.super_offload is false")));
}

TEST(OffloadSection, RefusesNumbersThatNoMachineHas) {
  for (const char* members :
       {"aio: {queue_depth: 4294967296}", "aio: {queue_depth: 40000000}",
        "aio: {block_size: 4294967296}", "aio: {intra_op_parallelism: 1000000}",
        "zero_optimization: {offload_param: {buffer_count: -1}}",
        "zero_optimization: {offload_param: {max_in_cpu: -1}}",
        "zero_optimization: {offload_optimizer: {buffer_count: 5000000000}}"}) {
    EXPECT_EQ(CheckOffload(members).errors.size(), 1u) << members;
  }
}

TEST(OffloadSection, RefusesGpuDirectStorageByName) {
  EXPECT_THAT(Messages(CheckOffload("aio: {use_gds: true}").errors),
              ElementsAre(HasSubstr("GPUDirect Storage is not built")));
}

}  // namespace
}  // namespace ds::config
