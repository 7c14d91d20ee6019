// Files of `accelerate config`.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/translate/sources.h"
#include "runtime/base/shell_quote.h"
#include "tests/unit/cli/translation_remarks.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Translation Accelerate(const std::string& yaml, const Json& deepspeed = {}) {
  const auto config = ReadFlatYaml(yaml);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return TranslateAccelerateConfig(*config, deepspeed);
}

TEST(AccelerateConfigTest, KeysOfASectionAtTheTopAreMissing) {
  EXPECT_THAT(Missing(Accelerate("distributed_type: MULTI_GPU\ngradient_accumulation_steps: 4\n"
                                 "fsdp_offload_params: true\nzero_stage: 3\n"
                                 "parallelism_config_tp_size: 2\n")),
              ::testing::UnorderedElementsAre("gradient_accumulation_steps", "fsdp_offload_params",
                                              "zero_stage", "parallelism_config_tp_size"));
}

TEST(AccelerateConfigTest, EveryKeyIsKnown) {
  Json config = {{"distributed_type", "NO"}};
  for (const auto& key : TranslateGolden()["accelerate_keys"]) {
    if (!config.contains(key)) config[key.get<std::string>()] = nullptr;
  }
  for (const char* section : {"deepspeed", "fsdp", "parallelism"}) {
    for (const auto& key : TranslateGolden()[std::string(section) + "_keys"]) {
      config[std::string(section) + "_config"][key.get<std::string>()] = "x";
    }
  }
  EXPECT_THAT(Missing(TranslateAccelerateConfig(config, {})), ::testing::IsEmpty());
}

TEST(AccelerateConfigTest, FilesOfAccelerate) {
  const Translation deepspeed = Accelerate(TranslateGolden()["yaml"][0]["text"]);
  EXPECT_TRUE(deepspeed.is_complete()) << DescribeMissing(deepspeed);
  EXPECT_EQ(ShellLine(deepspeed.launch),
            "--hostfile HOSTFILE --num_nodes 2 --num_gpus 4 --master_addr 10.0.0.1 --master_port "
            "29500");
  EXPECT_EQ(deepspeed.ds_config["zero_optimization"].dump(),
            R"({"stage":3,"offload_optimizer":{"device":"nvme","nvme_path":"/nvme"},)"
            R"("offload_param":{"device":"cpu"}})");
  EXPECT_EQ(deepspeed.ds_config["bf16"]["enabled"], true);
  EXPECT_EQ(deepspeed.ds_config["gradient_accumulation_steps"], 4);
  const Translation fsdp = Accelerate(TranslateGolden()["yaml"][1]["text"]);
  EXPECT_TRUE(fsdp.is_complete()) << DescribeMissing(fsdp);
  EXPECT_EQ(fsdp.ds_config["zero_optimization"]["stage"], 2);
  EXPECT_EQ(fsdp.ds_config["zero_optimization"]["offload_param"]["device"], "cpu");
  EXPECT_EQ(fsdp.flags["recompute"], "full");
  const Translation ddp = Accelerate(TranslateGolden()["yaml"][2]["text"]);
  EXPECT_THAT(ddp.launch, ElementsAre("--include", "localhost:0,2"));
  EXPECT_EQ(ddp.ds_config["torch_autocast"]["dtype"], "bfloat16");
}

TEST(AccelerateConfigTest, RanksTakeTheFirstOfTheGpus) {
  const auto include = [](const std::string& rest) {
    return Accelerate("distributed_type: MULTI_GPU\n" + rest).launch.back();
  };
  EXPECT_EQ(include("gpu_ids: 0,2,3\nnum_processes: 2\n"), "localhost:0,2");
  EXPECT_EQ(include("gpu_ids: 10,12\nnum_processes: 1\n"), "localhost:10");
  EXPECT_EQ(include("gpu_ids: 0,2\nnum_processes: 2\n"), "localhost:0,2");
  EXPECT_EQ(include("gpu_ids: 0,2\n"), "localhost:0,2");
  EXPECT_EQ(include("gpu_ids: 3\nnum_processes: 1\n"), "localhost:3");
}

TEST(AccelerateConfigTest, ContextParallelismIsARing) {
  const std::string head = "distributed_type: FSDP\nparallelism_config:\n";
  const Translation ring = Accelerate(head + "  parallelism_config_cp_size: 4\n");
  EXPECT_TRUE(ring.is_complete()) << DescribeMissing(ring);
  EXPECT_EQ(ring.flags["sp"], 4);
  EXPECT_EQ(ring.flags["sp_kind"], "ring");
  const Translation both = Accelerate(head +
                                      "  parallelism_config_cp_size: 4\n"
                                      "  parallelism_config_sp_size: 2\n");
  EXPECT_THAT(Missing(both), ElementsAre("parallelism_config_cp_size"));
}

TEST(AccelerateConfigTest, NamesUnmappedSettings) {
  EXPECT_THAT(Missing(Accelerate("distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  a: 1\n")),
              ElementsAre("distributed_type", "megatron_lm_config"));
  EXPECT_THAT(Missing(Accelerate("distributed_type: FSDP\nmixed_precision: fp8\n"
                                 "num_processes: 3\nnum_machines: 2\nmixed_precison: x\n"
                                 "fsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n")),
              ::testing::UnorderedElementsAre("mixed_precision", "num_processes", "mixed_precison",
                                              "fsdp_sharding_strategy"));
  EXPECT_THAT(Missing(Accelerate("distributed_type: 'NO'\nnum_process: 1\nparallelism_config:\n"
                                 "  parallelism_config_cp_size: 1\n")),
              ElementsAre("num_process"));
  const Json config = {{"zero_optimization", {{"stage", 1}}}, {"bf16", {{"enabled", "auto"}}}};
  const Translation file = Accelerate(
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n"
      "  deepspeed_config_file: ds.json\n",
      config);
  EXPECT_EQ(file.ds_config, config);
  EXPECT_EQ(file.flags["bf16"], true);
  EXPECT_TRUE(file.is_complete()) << DescribeMissing(file);
}

// Accelerate 1.x refuses the file with them.
TEST(AccelerateConfigTest, ADeepspeedFileIsTheFullConfig) {
  const Translation both = Accelerate(
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
      "  zero_stage: 3\n  gradient_clipping: 0.5\n  offload_param_device: none\n"
      "  zero3_init_flag: true\n",
      Json{{"zero_optimization", {{"stage", 1}}}});
  EXPECT_THAT(Missing(both), ::testing::UnorderedElementsAre("zero_stage", "gradient_clipping"));
}

// accelerate launch starts one process for it, whatever num_processes is.
TEST(AccelerateConfigTest, NoDistributionIsOneRank) {
  EXPECT_THAT(Accelerate("distributed_type: 'NO'\nnum_processes: 4\n").launch,
              ElementsAre("--num_gpus", "1"));
}

TEST(AccelerateConfigTest, NumbersInQuotesAreNumbers) {
  const Translation quoted = Accelerate(
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: '3'\n"
      "  gradient_accumulation_steps: '2'\n  gradient_clipping: '0.5'\n");
  EXPECT_EQ(quoted.ds_config["zero_optimization"]["stage"], 3);
  EXPECT_EQ(quoted.ds_config["gradient_accumulation_steps"], 2);
  EXPECT_EQ(quoted.ds_config["gradient_clipping"], 0.5);
  const std::string head = "distributed_type: MULTI_CPU\nnum_processes: ";
  EXPECT_THAT(ShellLine(Accelerate(head + "'2'\n").launch), HasSubstr("--num_gpus 2"));
  EXPECT_THAT(Missing(Accelerate(head + "two\n")), ElementsAre("num_processes"));
}

}  // namespace
}  // namespace ds::cli
