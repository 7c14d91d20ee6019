// What the batch, elasticity and ZeRO's groups count when a config cuts a job beside data
// parallelism, and what goes with it.

#include "runtime/config/sections/parallel_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

CheckResult CheckOn(int ranks, const std::string& members) {
  return CheckConfig("{" + members + "}", "ds.json", ranks);
}

constexpr char kAllDegrees[] = R"("pipeline": {"stages": 2}, "sequence_parallel_size": 2,
    "tensor_parallel": {"autotp_size": 2}, )";

// A degree of parallelism on 4 ranks, or why there is none.
std::string DegreeOn4(const std::string& members, const TrainingFlags& flags,
                      int ParallelConfig::*degree) {
  JobFacts facts{.world_size = 4};
  facts.flags = flags;
  const CheckResult checked =
      CheckConfig("{\"train_batch_size\": 4, " + members + "}", "ds.json", facts);
  return checked.ok ? std::to_string(checked.config.parallel.*degree)
                    : checked.errors.front().message;
}

TEST(ParallelSectionTest, TheBatchCountsRanksWithSamplesOfTheirOwn) {
  const CheckResult checked = CheckOn(16, std::string(kAllDegrees) + R"("train_batch_size": 24)");
  EXPECT_EQ(ValueOf(checked, "train_micro_batch_size_per_gpu"), 12);
  EXPECT_THAT(OriginOf(checked, "train_micro_batch_size_per_gpu"),
              HasSubstr("world size 16 / 8 ranks of a sample"));
  EXPECT_THAT(Messages(checked.errors), ::testing::IsEmpty());
}

TEST(ParallelSectionTest, DegreesDivideTheRanks) {
  EXPECT_THAT(
      Messages(CheckOn(12, std::string(kAllDegrees) + R"("train_batch_size": 24)").errors),
      Contains(HasSubstr("sequence_parallel_size, 8, must divide the number of ranks, 12")));
}

TEST(ParallelSectionTest, GradientsOfSequenceRanksTravelInADtypeOfTheirOwn) {
  const std::string members = R"("train_batch_size": 4, "communication_data_type": "fp16",
      "seq_parallel_communication_data_type": "bf16")";
  const CheckResult cut = CheckOn(4, members + R"(, "sequence_parallel_size": 2)");
  ASSERT_TRUE(cut.ok) << cut.errors.front().message;
  EXPECT_EQ(cut.config.communication_data_type, DataType::kBf16);
  EXPECT_THAT(Messages(cut.warnings), Not(Contains(HasSubstr("without sequence ranks"))));
  const CheckResult whole = CheckOn(4, members);
  EXPECT_EQ(whole.config.communication_data_type, DataType::kFp16);
  EXPECT_THAT(Messages(whole.warnings), Contains(HasSubstr("without sequence ranks")));
  // Without it they travel as all do.
  EXPECT_EQ(CheckOn(4, R"("train_batch_size": 4, "sequence_parallel_size": 2)")
                .config.communication_data_type,
            std::nullopt);
}

TEST(ParallelSectionTest, DegreesThatAreOffLeaveAllRanks) {
  const CheckResult checked =
      CheckOn(4, R"("train_batch_size": 8, "pipeline": {"stages": 1}, "sequence_parallel_size": 1,
                    "tensor_parallel": {"autotp_size": 0})");
  ASSERT_TRUE(checked.ok) << checked.errors.front().message;
  EXPECT_EQ(checked.config.parallel.ranks_of_a_sample(), 1);
  EXPECT_EQ(checked.config.batch.train_micro_batch_size_per_gpu, 2);
}

TEST(ParallelSectionTest, TensorRanksComeFromTheFileOrTheFlag) {
  const auto degree = [](const std::string& members, std::optional<std::int64_t> flag) {
    return DegreeOn4(members, {.tp = flag}, &ParallelConfig::tensor);
  };
  const std::string in_file = R"("tensor_parallel": {"autotp_size": 2})";
  EXPECT_EQ(degree(in_file, {}), "2");
  EXPECT_EQ(degree(in_file, 2), "2");
  EXPECT_EQ(degree(R"("steps_per_print": 1)", 4), "4");
  EXPECT_THAT(degree(in_file, 4), HasSubstr("--tp says 4"));
  EXPECT_THAT(degree(R"("steps_per_print": 1)", 3),
              HasSubstr("must divide the number of ranks, 4"));
}

TEST(ParallelSectionTest, TensorPartsSuitTheRest) {
  const auto errors = [](const std::string& members) {
    return Messages(
        CheckOn(4, R"("train_batch_size": 4, "tensor_parallel": {"autotp_size": 2}, )" + members)
            .errors);
  };
  EXPECT_THAT(errors(R"("optimizer": {"type": "adamw"}, "zero_optimization": {"stage": 3})"),
              ::testing::IsEmpty());
  EXPECT_THAT(
      errors(R"("optimizer": {"type": "Muon"})"),
      Contains(HasSubstr("Muon is not built with tensor_parallel.autotp_size above 1: it "
                         "looks at more than single elements; choose Adam, AdamW, MuAdam")));
  EXPECT_THAT(errors(R"("optimizer": {"type": "AdamW8bit"})"),
              Contains(HasSubstr("AdamW8bit is not built with tensor_parallel.autotp_size")));
  EXPECT_THAT(errors(R"("optimizer": {"type": "MuAdam", "params": {"base_shapes": "a.bsh"}})"),
              ::testing::IsEmpty());
  const auto with_key = [](const std::string& key) {
    return Messages(
        CheckOn(4, R"("train_batch_size": 4, "tensor_parallel": {"autotp_size": 2, )" + key + "}")
            .errors);
  };
  EXPECT_THAT(with_key(R"("keep_module_on_host": true)"),
              Contains(HasSubstr("keep_module_on_host is not supported yet: weights are on the")));
  EXPECT_THAT(with_key(R"("preset_model": "llama", "keep_module_on_host": false)"),
              ::testing::IsEmpty());
  EXPECT_THAT(with_key(R"("tensor_parallel": {"tp_size": 2})"), ::testing::IsEmpty());
  EXPECT_THAT(with_key(R"("tensor_parallel": {"tp_size": 4})"),
              Contains(HasSubstr("tensor_parallel.tensor_parallel.tp_size must be "
                                 "tensor_parallel.autotp_size, 2, or left out")));
  EXPECT_THAT(errors(R"("activation_checkpointing": {"partition_activations": true})"),
              ::testing::IsEmpty());
  EXPECT_THAT(errors(R"("sparse_gradients": true)"),
              Contains(HasSubstr("sparse_gradients is not built with")));
  EXPECT_THAT(errors(R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true})"),
              Contains(HasSubstr("zero_quantized_weights is not built with")));
  EXPECT_THAT(errors(R"("zero_optimization": {"stage": 3, "offload_param": {"device": "nvme",
                  "nvme_path": "/tmp"}})"),
              Contains(HasSubstr("offload_param.device nvme is not built with")));
}

TEST(ParallelSectionTest, TensorSumsOverlapWithProductsAsConfigured) {
  const auto overlaps = [](const char* value) {
    const CheckResult result =
        CheckOn(4, R"("train_batch_size": 4, "tensor_parallel": {"autotp_size": 2,
                      "tp_overlap_comm": )" +
                       std::string(value) + "}");
    EXPECT_THAT(Messages(result.errors), ::testing::IsEmpty());
    return result.config.parallel.tensor_sums_overlap;
  };
  EXPECT_TRUE(overlaps("true"));
  EXPECT_FALSE(overlaps("false"));
}

TEST(ParallelSectionTest, StagesComeFromTheFileOrTheFlag) {
  const auto stages = [](const std::string& members, std::optional<std::int64_t> flag) {
    return DegreeOn4(members, {.pp = flag}, &ParallelConfig::pipeline);
  };
  EXPECT_EQ(stages(R"("pipeline": {"stages": 2})", {}), "2");
  EXPECT_EQ(stages(R"("pipeline": {"stages": "auto"})", 4), "4");
  EXPECT_EQ(stages(R"("steps_per_print": 1)", 2), "2");
  EXPECT_THAT(stages(R"("pipeline": {"stages": 2})", 4), HasSubstr("--pp says 4"));
  EXPECT_THAT(stages(R"("pipeline": {"stages": 0})", {}), HasSubstr("at least 1"));
}

TEST(ParallelSectionTest, StagesSuitTheRest) {
  const auto errors = [](const std::string& members) {
    return Messages(
        CheckOn(4, R"("train_batch_size": 4, "pipeline": {"stages": 2}, )" + members).errors);
  };
  EXPECT_THAT(errors(R"("optimizer": {"type": "adamw"}, "zero_optimization": {"stage": 1},
                        "fp16": {"enabled": true})"),
              ::testing::IsEmpty());
  EXPECT_THAT(errors(R"("tensor_parallel": {"autotp_size": 2})"), ::testing::IsEmpty());
  EXPECT_THAT(errors(R"("sequence_parallel_size": 2)"), ::testing::IsEmpty());
  EXPECT_THAT(errors(R"("optimizer": {"type": "Lamb"})"),
              Contains(HasSubstr("Lamb is not built with pipeline.stages above 1: it looks at more "
                                 "than a stage has; choose Adam")));
  EXPECT_THAT(errors(R"("sparse_gradients": true)"),
              Contains(HasSubstr("sparse_gradients is not built with pipeline.stages")));
  EXPECT_THAT(errors(R"("managed_gradient_accumulation": false)"),
              Contains(HasSubstr("managed_gradient_accumulation is not built with")));
  EXPECT_THAT(
      errors(R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}})"),
      ::testing::IsEmpty());
  EXPECT_THAT(errors(R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme",
                        "nvme_path": "/drive"}, "offload_param": {"device": "cpu"}})"),
              ::testing::IsEmpty());
  EXPECT_THAT(
      errors(R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu",
                        "super_offload": true}})"),
      Contains(HasSubstr("super_offload is not built with pipeline.stages above 1: stages")));
}

TEST(ParallelSectionTest, KeysOfThePipelineAreReadOrRefused) {
  const auto check = [](const std::string& keys) {
    return CheckOn(2, R"("train_batch_size": 4, "pipeline": {"stages": 2, )" + keys + "}");
  };
  const CheckResult read =
      check(R"("partition": "type:decoder", "activation_checkpoint_interval": 1)");
  ASSERT_THAT(Messages(read.errors), ::testing::IsEmpty());
  EXPECT_EQ(read.config.pipeline.partition, "type:decoder");
  EXPECT_EQ(read.config.pipeline.activation_checkpoint_interval, 1);
  for (const std::string method : {"profile", "memory"}) {
    EXPECT_EQ(check(R"("partition": ")" + method + "\"").config.pipeline.partition, method);
  }
  EXPECT_THAT(Messages(check(R"("partition": "time")").errors),
              Contains(HasSubstr("pipeline.partition is \"time\": write uniform")));
  EXPECT_THAT(Messages(check(R"("activation_checkpoint_interval": 2)").errors),
              Contains(HasSubstr("activation_checkpoint_interval")));
  EXPECT_TRUE(read.config.pipeline.pipe_partitioned);
  EXPECT_TRUE(read.config.pipeline.grad_partitioned);
  const CheckResult whole = check(R"("pipe_partitioned": false)");
  EXPECT_FALSE(whole.config.pipeline.pipe_partitioned);
  EXPECT_TRUE(whole.config.pipeline.grad_partitioned);
  EXPECT_FALSE(check(R"("grad_partitioned": false)").config.pipeline.grad_partitioned);
  EXPECT_THAT(Messages(whole.warnings), Not(Contains(HasSubstr("has no effect"))));
  const CheckResult reentrant = check(R"("use_reentrant": false)");
  EXPECT_THAT(Messages(reentrant.errors), ::testing::IsEmpty());
  EXPECT_THAT(Messages(reentrant.warnings), Contains(HasSubstr("has no effect")));
}

TEST(ParallelSectionTest, StateIsShardedOverRanksOfDataAndSequence) {
  const auto errors = [](const std::string& zero) {
    return Messages(CheckOn(16, std::string(kAllDegrees) + R"("train_batch_size": 24,
        "zero_optimization": {"stage": 3, )" +
                                    zero + "}")
                        .errors);
  };
  const auto refused = Contains(HasSubstr("must "));
  EXPECT_THAT(errors(R"("mics_shard_size": 4)"), Not(refused));
  EXPECT_THAT(errors(R"("mics_shard_size": 8)"),
              Contains(HasSubstr("must divide the number of ranks, 4, and is 8")));
  EXPECT_THAT(errors(R"("mics_shard_size": 1)"),
              Contains(HasSubstr("must be a multiple of sequence_parallel_size, 2, and is 1")));
  EXPECT_THAT(errors(R"("zero_hpz_partition_size": 4)"), Not(refused));
  EXPECT_THAT(errors(R"("zero_hpz_partition_size": 8)"),
              Contains(HasSubstr("share the state, 4, and is 8")));
}

TEST(ParallelSectionTest, ExpertsDivideTheRanksThatShareTheState) {
  const auto errors = [](int experts) {
    return Messages(CheckOn(8, R"("train_batch_size": 8, "expert_parallel": {"enabled": true,
        "autoep_size": )" + std::to_string(experts) +
                                   "}")
                        .errors);
  };
  EXPECT_THAT(errors(4), Not(Contains(HasSubstr("must divide"))));
  EXPECT_THAT(errors(3), Contains(HasSubstr("share the state, 8, and is 3: take 2 or 4")));
  EXPECT_THAT(errors(16), Contains(HasSubstr("and is 16: take 8")));
}

TEST(ParallelSectionTest, ExpertsDivideTheRanksOfAMicsGroup) {
  const auto errors = [](int stage) {
    return Messages(CheckOn(8, R"("train_batch_size": 8, "expert_parallel": {"enabled": true,
        "autoep_size": 4}, "zero_optimization": {"mics_shard_size": 2, "stage": )" +
                                   std::to_string(stage) + "}")
                        .errors);
  };
  EXPECT_THAT(errors(3), Contains(HasSubstr("share the state, 2, and is 4: take 2")));
  EXPECT_THAT(errors(0), ::testing::IsEmpty());
}

TEST(ParallelSectionTest, ExpertRanksComeFromTheFileOrTheFlag) {
  const auto degree = [](const std::string& members, std::optional<std::int64_t> flag) {
    return DegreeOn4(members, {.ep = flag}, &ParallelConfig::expert);
  };
  const std::string in_file = R"("expert_parallel": {"enabled": true, "autoep_size": 2})";
  EXPECT_EQ(degree(in_file, {}), "2");
  EXPECT_EQ(degree(in_file, 2), "2");
  EXPECT_EQ(degree(R"("steps_per_print": 1)", 4), "4");
  EXPECT_EQ(degree(R"("expert_parallel": {"enabled": false, "autoep_size": 2})", {}), "1");
  EXPECT_THAT(degree(in_file, 4), HasSubstr("--ep says 4"));
  EXPECT_THAT(degree(R"("expert_parallel": {"enabled": false})", 2), HasSubstr("--ep says true"));
  EXPECT_THAT(degree(R"("steps_per_print": 1)", 3), HasSubstr("take 2 or 4"));
}

TEST(ParallelSectionTest, ExpertsSuitTheRest) {
  const auto check = [](const std::string& members) {
    return CheckOn(4, R"("train_batch_size": 4, "expert_parallel": {"enabled": true,
        "autoep_size": 2}, )" +
                          members);
  };
  const auto errors = [&](const std::string& members) { return Messages(check(members).errors); };
  for (const char* good :
       {R"("zero_optimization": {"stage": 3}, "sequence_parallel_size": 2)",
        R"("tensor_parallel": {"autotp_size": 2})", R"("pipeline": {"stages": 2})",
        R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})"}) {
    EXPECT_THAT(errors(good), ::testing::IsEmpty()) << good;
  }
  EXPECT_TRUE(
      check(R"("use_data_before_expert_parallelism": true)").config.parallel.data_before_expert);
  EXPECT_THAT(errors(R"("optimizer": {"type": "Lamb"})"),
              Contains(HasSubstr("Lamb is not built with expert_parallel.autoep_size above 1")));
  EXPECT_THAT(errors(R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true})"),
              Contains(HasSubstr("zero_quantized_weights is not built with")));
  EXPECT_THAT(errors(R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme",
                  "nvme_path": "/tmp"}})"),
              Contains(HasSubstr("offload_optimizer.device nvme is not built with")));
}

// DeepSpeed takes null for an expert whose two gated products are one tensor.
TEST(ParallelSectionTest, AnExpertsThirdProductMayBeNull) {
  const auto check = [](const std::string& key) {
    return CheckOn(2, R"("train_batch_size": 2, "expert_parallel": {"enabled": true,
        "autoep_size": 2, )" +
                          key + "}");
  };
  const CheckResult given = check(R"("expert_w3": null)");
  EXPECT_THAT(Messages(given.errors), ::testing::IsEmpty());
  EXPECT_TRUE(given.given.at("expert_parallel").at("expert_w3").is_null());
  EXPECT_THAT(Messages(check(R"("expert_w3": 3)").errors),
              Contains(HasSubstr("expert_w3 must be a text in double quotes, not 3")));
  EXPECT_THAT(Messages(check(R"("top_k": null)").errors),
              Contains(HasSubstr("top_k must be a whole number, not null")));
}

TEST(ParallelSectionTest, ExpertsAreAsWideAsTensorRanksHaveThem) {
  const auto errors = [](int width) {
    return Messages(CheckOn(4, R"("train_batch_size": 4, "expert_parallel": {"enabled": true,
        "autoep_size": 2, "expert_tensor_parallel_size": )" +
                                   std::to_string(width) + R"(},
        "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 3})")
                        .errors);
  };
  EXPECT_THAT(errors(1), ::testing::IsEmpty());
  EXPECT_THAT(errors(2), ::testing::IsEmpty());
  EXPECT_THAT(errors(4), Contains(HasSubstr("expert_tensor_parallel_size must be "
                                            "tensor_parallel.autotp_size, 2, or 1")));
}

TEST(ParallelSectionTest, ReadsRulesOfTheTensorPartition) {
  const auto errors = [](const std::string& rules) {
    return Messages(CheckOn(4, R"("train_batch_size": 4, "tensor_parallel": {"autotp_size": 2,
        "partition_config": {)" + rules +
                                   "}}")
                        .errors);
  };
  EXPECT_THAT(errors(R"("tp_size": 2, "use_default_specs": false, "strict_mode": true,
                        "layer_specs": [{"patterns": [".*o_proj"], "partition_type": "row",
                                         "partition_dim": 1, "model_types": ["llama"]}])"),
              ::testing::IsEmpty());
  EXPECT_THAT(errors(R"("tp_size": 4)"),
              Contains(HasSubstr("partition_config.tp_size must be tensor_parallel.autotp_size")));
  EXPECT_THAT(errors(R"("layer_specs": [{"patterns": ["x"], "gather_output": true}])"),
              Contains(HasSubstr("gather_output")));
  EXPECT_THAT(errors(R"("layer_specs": [{"patterns": ["x"], "partition_type": "diagonal"}])"),
              Contains(HasSubstr("partition_type")));
}

TEST(ParallelSectionTest, KeysOfAPartitionIntoOnePartHaveNoEffect) {
  const auto warnings = [](const std::string& members) {
    return Messages(CheckOn(4, R"("train_batch_size": 4, )" + members).warnings);
  };
  const auto of_tensor = [&](const char* size) {
    return warnings(R"("tensor_parallel": {"autotp_size": )" + std::string(size) +
                    R"(, "partition_config": {"use_default_specs": false}})");
  };
  const char* const kEnd = "use_default_specs has no effect while tensor_parallel.autotp_size is ";
  EXPECT_THAT(of_tensor("0"), Contains(HasSubstr(kEnd + std::string("0"))));
  EXPECT_THAT(of_tensor("1"), Contains(HasSubstr(kEnd + std::string("1"))));
  EXPECT_THAT(of_tensor("2"), Not(Contains(HasSubstr("has no effect"))));
  EXPECT_THAT(warnings(R"("pipeline": {"stages": 1, "grad_partitioned": false})"),
              Contains(HasSubstr("grad_partitioned has no effect while pipeline.stages is 1")));
}

TEST(ParallelSectionTest, ElasticityNamesTheSameRanks) {
  const auto errors = [](const std::string& cut) {
    return Messages(CheckOn(8, cut + R"("elasticity": {"enabled": true, "max_train_batch_size": 64,
        "micro_batch_sizes": [2, 4], "num_gpus_per_node": 4, "min_gpus": 1, "max_gpus": 32,
        "version": 0.2, "model_parallel_size": 2})")
                        .errors);
  };
  EXPECT_THAT(errors(R"("tensor_parallel": {"autotp_size": 2}, )"),
              Not(Contains(HasSubstr("model_parallel_size is"))));
  EXPECT_THAT(errors(""), Contains(HasSubstr("this config has 1 rank work on a sample")));
}

}  // namespace
}  // namespace ds::config
