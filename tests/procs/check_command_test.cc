// For how many ranks `dsrun check` judges a ds_config, and for which model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/procs/checked_job.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CheckCommand, TakesTheFewestRanksThatDegreesAllow) {
  const TemporaryFolder folder;
  const std::string config = (folder.path() / "cut.json").string();
  ASSERT_TRUE(WriteFileAtomically(config, R"({"train_micro_batch_size_per_gpu": 2,
      "tensor_parallel": {"autotp_size": 4}, "pipeline": {"stages": 2}})")
                  .ok());
  const ProgramResult checked = RunProgram({DS_BIN_DIR "/dsrun", "check", config});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("is good for 8 ranks: 2 samples a step"));
  const ProgramResult too_few =
      RunProgram({DS_BIN_DIR "/dsrun", "check", config, "--world_size", "4"});
  EXPECT_EQ(too_few.status, 2);
  EXPECT_THAT(too_few.err, HasSubstr("must divide the number of ranks, 4"));
}

// What a job would be refused for after its ranks have started, or before that by train alone.
TEST(CheckCommand, ComparesModelKeysWithTheModel) {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& sections, const std::string& model) {
    const std::string config = (folder.path() / "ds.json").string();
    EXPECT_TRUE(
        WriteFileAtomically(config, R"({"train_micro_batch_size_per_gpu": 2, )" + sections + "}")
            .ok());
    return RunProgram(
        {DS_BIN_DIR "/dsrun", "check", config, "--world_size", "2", "--model", model});
  };
  const auto cut_by = [](const std::string& type) {
    return R"("tensor_parallel": {"autotp_size": 2, "partition_config": {"layer_specs": [
        {"patterns": [".*q_proj"], "partition_type": ")" +
           type + R"("}]}})";
  };
  const auto routed_to = [](const std::string& experts) {
    return R"("expert_parallel": {"enabled": true, "autoep_size": 2, "top_k": )" + experts + "}";
  };
  EXPECT_EQ(check(cut_by("column"), "llama-tiny").status, 0);
  EXPECT_EQ(check(routed_to("2"), "mixtral-tiny").status, 0);
  const ProgramResult refused = check(cut_by("row"), "llama-tiny");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr(R"(error: tensor_parallel.partition_config: )"
                                     R"(model.layers.0.self_attn.q_proj is "row" by layer_specs)"));
  const ProgramResult routed = check(routed_to("3"), "mixtral-tiny");
  EXPECT_EQ(routed.status, 2);
  EXPECT_THAT(routed.err, HasSubstr("error: expert_parallel.top_k is 3, and mixtral has 2 as"));
  const ProgramResult shared_out =
      check(R"("expert_parallel": {"enabled": true, "autoep_size": 2})", "llama-tiny");
  EXPECT_EQ(shared_out.status, 2);
  EXPECT_THAT(shared_out.err, HasSubstr("error: --model llama-tiny: "));
}

TEST(CheckCommand, WarnsOfABatchLargerThanTheData) {
  const TemporaryFolder folder;
  const std::string data = (folder.path() / "data.txt").string();
  ASSERT_TRUE(WriteFileAtomically(data, std::string(321, 'x')).ok());  // ten samples of bytes
  const auto check = [&](const std::string& batch) {
    const std::string config = (folder.path() / "ds.json").string();
    EXPECT_TRUE(WriteFileAtomically(config, R"({"train_batch_size": )" + batch + "}").ok());
    return RunProgram({DS_BIN_DIR "/dsrun", "check", config, "--model", "gpt2-demo", "--data", data,
                       "--seq_len", "32", "--epochs", "1"});
  };
  const ProgramResult larger = check("25");
  EXPECT_EQ(larger.status, 0) << larger.err;
  EXPECT_THAT(larger.err,
              HasSubstr("warning: a step takes 25 samples (train_batch_size); the data have 10, so "
                        "each step reads them 2.5 times\n"));
  EXPECT_THAT(check("10").err, Not(HasSubstr("a step takes")));
}

// A flag of training says of which kind sequence ranks are; what all kinds refuse is said here.
TEST(CheckCommand, RefusesSequenceRanksThatNoKindTakes) {
  const TemporaryFolder folder;
  const auto check = [&](const std::string& rope) {
    const std::string config = (folder.path() / "ds.json").string();
    const std::string model = (folder.path() / "model.json").string();
    EXPECT_TRUE(WriteFileAtomically(config, R"({"train_micro_batch_size_per_gpu": 2,
        "sequence_parallel_size": 3})")
                    .ok());
    EXPECT_TRUE(WriteFileAtomically(model, R"({"model_type": "llama", "vocab_size": 256,
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 64, "rope_scaling": )" +
                                               rope + "}")
                    .ok());
    return RunProgram({DS_BIN_DIR "/dsrun", "check", config, "--model", model, "--sp_kind", "ring",
                       "--seq_len", "63"});
  };
  const ProgramResult ring = check("null");
  EXPECT_EQ(ring.status, 0) << ring.err;
  const ProgramResult refused = check(R"({"rope_type": "dynamic", "factor": 2.0})");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("not built for rotary positions that depend on the length"));
}

TEST_F(CheckedJob, RefusesTheJobsThatTrainRefuses) {
  const std::string plain = Write("plain.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const std::string t5 = Write("t5.json", R"({"model_type": "t5", "d_model": 64})");
  ExpectRefused(plain, {"--model", t5}, "model_type \"t5\" is not supported; supported are");
  const std::string bert = Write("bert.json", R"({"model_type": "bert", "hidden_size": 64})");
  ExpectRefused(plain, {"--model", bert}, "model_type \"bert\" is not supported");
  ExpectRefused(plain, {"--model", "llama-tiny", "--data", "no/such/file"},
                "--data no/such/file: no such data file or folder");
  ExpectRefused(plain, {"--model", "llama-tiny", "--eval_every", "2"},
                "--eval_every needs evaluation data");
  const std::string few = Write("few.json", R"({"train_micro_batch_size_per_gpu": 1,
      "tensor_parallel": {"tp_size": 2}, "activation_checkpointing": {
          "partition_activations": true, "contiguous_memory_optimization": true,
          "number_checkpoints": 1}})");
  ExpectRefused(few, {"--model", "llama-tiny"},
                "activation_checkpointing.number_checkpoints is 1, and a rank recomputes 4 layers");
  const std::string gated = Write("gated.json", R"({"train_micro_batch_size_per_gpu": 1,
      "moe": {"enabled": true, "capacity_factor": 1.25}})");
  ExpectRefused(gated, {"--model", "llama-tiny"}, "moe: llama has no experts");
  ExpectRefused(gated, {"--model", "mixtral-tiny", "--tile_mlp", "2"},
                "--tile_mlp: the moe section");
}

// No folder has the weights of an MLP next to experts, or gets them.
TEST_F(CheckedJob, ResidualExpertsAreRefusedWhereAFolderHoldsTheModel) {
  const std::string residual = Write("residual.json", R"({"train_micro_batch_size_per_gpu": 1,
      "moe": {"enabled": true, "use_residual": true}})");
  const std::string families = DS_SOURCE_DIR "/tests/numerics/goldens/families/";
  ExpectRefused(residual, {"--model", families + "mixtral", "--seq_len", "32"},
                "moe.use_residual: --model " + families +
                    "mixtral has weights, and none of an MLP next to its experts: copy its "
                    "config.json");
  ExpectRefused(residual, {"--model", families + "qwen2_moe/config.json", "--seq_len", "32"},
                "moe.use_residual: all tokens go through an expert of qwen2_moe already");
  ExpectRefused(residual, {"--model", "llama-tiny"}, "moe: llama has no experts");
  ExpectRefused(residual, {"--model", "mixtral-tiny", "--save_hf", "out"},
                "--save_hf: transformers has no model with an MLP next to its experts");
  ExpectRefused(residual, {"--model", "mixtral-tiny", "--save_hf", "out", "--lora_rank", "2"},
                "--save_hf: transformers has no model with an MLP next to its experts");
}

TEST_F(CheckedJob, AcceptsTheJobsThatTrainAccepts) {
  const std::string config = Write("good.json", R"({"train_micro_batch_size_per_gpu": 1,
      "moe": {"enabled": true, "ep_size": 2, "num_experts": 8, "k": 2, "capacity_factor": 1.5}})");
  const ProgramResult good = RunProgram({DS_BIN_DIR "/dsrun", "check", config, "--num_gpus", "2",
                                         "--model", "mixtral-tiny", "--seq_len", "32"});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("is good for 2 ranks"));
  const std::string residual = Write("residual.json", R"({"train_micro_batch_size_per_gpu": 1,
      "moe": {"enabled": true, "mlp_type": "residual"}})");
  const std::string alone =
      Write("config.json",
            *ReadFile(DS_SOURCE_DIR "/tests/numerics/goldens/families/mixtral/config.json"));
  for (const std::string& model : {std::string("mixtral-tiny"), alone}) {
    const ProgramResult taken = RunProgram({DS_BIN_DIR "/dsrun", "check", residual, "--num_gpus",
                                            "2", "--model", model, "--seq_len", "32"});
    EXPECT_EQ(taken.status, 0) << taken.err;
  }
}

TEST_F(CheckedJob, FlagsOfASchedulesMakeIt) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}})");
  const auto check = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {DS_BIN_DIR "/dsrun", "check", config, "--warmup_steps", "5"});
    return RunProgram(flags);
  };
  for (const char* type : {"linear", "cosine", "constant_with_warmup"}) {
    const ProgramResult plain = check({"--lr_scheduler_type", type});
    EXPECT_EQ(plain.status, 0) << type << plain.err;
    const ProgramResult job = check({"--lr_scheduler_type", type, "--steps", "20", "--model",
                                     "llama-tiny", "--seq_len", "32", "--json"});
    EXPECT_EQ(job.status, 0) << type << job.err;
    EXPECT_THAT(job.out, HasSubstr("\"warmup_num_steps\": 5"));
  }
  EXPECT_EQ(check({}).status, 2) << "there is no schedule that warms up";
  const ProgramResult refused = check({"--lr_schedule", "WarmupLR", "--cycle_momentum"});
  EXPECT_EQ(refused.status, 2) << refused.out;
}

TEST_F(CheckedJob, FlagsWithoutAConfigKeyNameTheirReplacement) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const auto error = [&](const std::string& flag) {
    return RunProgram({DS_BIN_DIR "/dsrun", "check", config, flag}).err;
  };
  EXPECT_THAT(error("--use_cpu"), HasSubstr("--device is not supported: check starts no rank"));
  EXPECT_THAT(error("--device=cpu"), HasSubstr("leave it out"));
  EXPECT_THAT(error("--from_hf_trainer=a.json"), HasSubstr("dsrun translate FILE --out ds.json"));
  EXPECT_THAT(error("--recipe=lora"), HasSubstr("train --recipe checks its config"));
}

TEST_F(CheckedJob, ReportsConfiguredRecomputationWithItsMemory) {
  const std::string config = Write("again.json", R"({"train_micro_batch_size_per_gpu": 4,
      "activation_checkpointing": {"cpu_checkpointing": true}})");
  const auto check = [&](std::vector<std::string> flags) {
    std::vector<std::string> words = {DS_BIN_DIR "/dsrun", "check",     config, "--world_size", "2",
                                      "--model",           "llama-tiny"};
    words.insert(words.end(), flags.begin(), flags.end());
    return RunProgram(words);
  };
  const ProgramResult by_config = check({});
  EXPECT_EQ(by_config.status, 0) << by_config.err;
  EXPECT_THAT(by_config.err, HasSubstr("every layer is recomputed in the backward pass"));
  EXPECT_THAT(by_config.err, HasSubstr(" of activations at the most, and "));
  EXPECT_THAT(check({"--recompute", "none"}).err, HasSubstr("--recompute none rules"));
  EXPECT_THAT(check({"--recompute", "full"}).err,
              ::testing::Not(HasSubstr("is recomputed in the")));
}

TEST_F(CheckedJob, MemoryOfThisHostIsJudgedWhereRanksAreOnIt) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const std::string large = Write("large.json", R"({"model_type": "llama", "vocab_size": 128000,
      "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
      "num_attention_heads": 128, "num_key_value_heads": 8, "max_position_embeddings": 8192})");
  const std::vector<std::string> words = {DS_BIN_DIR "/dsrun", "check", config, "--model", large};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return RunProgram(more);
  };
  const ProgramResult refused = with({"--num_gpus", "2"});
  EXPECT_EQ(refused.status, 3) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("2 ranks on this host will hold"));
  EXPECT_THAT(refused.err, HasSubstr("\n--allow_overcommit starts them all the same\n"));
  EXPECT_EQ(with({"--num_gpus", "2", "--allow_overcommit"}).status, 0);
  EXPECT_EQ(with({"--world_size", "2"}).status, 0) << "hosts are not known";
}

}  // namespace
}  // namespace ds::testing
