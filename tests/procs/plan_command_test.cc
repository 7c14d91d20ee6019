// What `dsrun plan` shows of a hostfile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PlanCommandTest : public ::testing::Test {
 protected:
  ProgramResult Dsrun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), DS_BIN_DIR "/dsrun");
    return RunProgram(arguments, {.working_directory = folder_.path()});
  }
  std::string Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
    return (folder_.path() / name).string();
  }

  TemporaryFolder folder_;
};

TEST_F(PlanCommandTest, ProposesAPartitionOfAModel) {
  const std::string hosts = Write("hosts", "a slots=4\nb slots=4\n");
  const ProgramResult fits = Dsrun({"-H", hosts, "--device", "cpu", "plan", "--fit", "--model",
                                    "gpt2-30m", "--memory", "2G", "--seq_len", "1024"});
  EXPECT_EQ(fits.status, 0) << fits.err;
  EXPECT_THAT(fits.out, StartsWith("settings that fit 2.00 GiB a rank, of 8 ranks, 4 on a host,"));
  EXPECT_THAT(fits.out, HasSubstr("\n  zero_optimization.stage 0: "));
  EXPECT_THAT(fits.out, HasSubstr("--sp 2: "));
  EXPECT_THAT(
      Dsrun({"-H", hosts, "plan", "--json", "--fit", "--model", "gpt2-30m", "--memory", "2G",
             "--device", "cpu"})
          .out,
      StartsWith(R"({"fits":[{"zero_stage":0,"tp":1,"sp":1,"sp_kind":"ulysses","pp":1,"ep":1,)"));
  const ProgramResult lacking = Dsrun({"-H", hosts, "plan", "--fit", "--model", "gpt2-30m"});
  EXPECT_EQ(lacking.status, 2);
  EXPECT_THAT(lacking.err, HasSubstr("--memory, the limit of each rank (80G)"));
}

TEST_F(PlanCommandTest, ChecksATrainJobAsTrainDoes) {
  const std::vector<std::string> bad = {"train", "--model", "nope"};
  const auto with = [&](std::vector<std::string> front, const std::vector<std::string>& words) {
    front.insert(front.end(), words.begin(), words.end());
    return Dsrun(front);
  };
  const ProgramResult trained = Dsrun(bad);
  EXPECT_EQ(trained.status, 2);
  for (const std::vector<std::string>& front :
       std::vector<std::vector<std::string>>{{"plan"}, {"plan", "--"}}) {
    const ProgramResult refused = with(front, bad);
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(refused.err, trained.err);
    EXPECT_EQ(refused.out, "");
  }
  const ProgramResult good =
      with({"--device", "cpu", "plan"}, {"train", "--num_gpus", "3", "--model", "gpt2-demo"});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_THAT(good.out, StartsWith("3 ranks on 1 host")) << "a launch flag after train counts";
  EXPECT_THAT(good.out, HasSubstr("each runs: 'train' '--num_gpus' '3'"));
  EXPECT_THAT(good.err, HasSubstr("has no weights: they start at random"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "runs"));
}

TEST_F(PlanCommandTest, RefusesOtherCommandsOfDsrun) {
  for (const char* command : {"resume", "bench", "run"}) {
    const ProgramResult refused = Dsrun({"plan", "--", command, "x"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, StartsWith("dsrun: plan: '" + std::string(command) +
                                        "' is a command of dsrun, which plan does not show"));
  }
  EXPECT_EQ(Dsrun({"--num_gpus", "1", "plan", "--", "./bench"}).status, 0) << "a program";
}

TEST_F(PlanCommandTest, WhereNothingFitsAScriptSeesIt) {
  const ProgramResult none = Dsrun({"--num_gpus", "2", "--device", "cpu", "plan", "--fit",
                                    "--model", "gpt2-30m", "--memory", "1M"});
  EXPECT_EQ(none.status, 1) << none.err;
  EXPECT_THAT(none.out, StartsWith("nothing fits 1.00 MiB a rank"));
}

TEST_F(PlanCommandTest, NamesUnknownOrImpossibleFits) {
  const auto refusal = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--num_gpus", "2", "--device", "cpu", "plan"});
    const ProgramResult result = Dsrun(flags);
    EXPECT_EQ(result.status, 2) << result.out;
    return result.err;
  };
  // Not that nothing fits: what it makes is not known.
  const std::string cast = Write("cast.json", R"({"train_batch_size": 1,
      "optimizer": {"type": "AdamW"}, "torch_autocast": {"enabled": true, "dtype": "bfloat16"}})");
  EXPECT_THAT(
      refusal({"--fit", "--model", "gpt2-30m", "--memory", "80G", "--deepspeed_config", cast}),
      HasSubstr("--fit: the memory of torch_autocast is not known"));
  const std::string cut = Write("cut.json", R"({"train_batch_size": 8,
      "tensor_parallel": {"autotp_size": 3}})");
  EXPECT_THAT(
      refusal({"--fit", "--model", "gpt2-30m", "--memory", "80G", "--deepspeed_config", cut}),
      HasSubstr("--fit searches for batch sizes and degrees; they may be left out"));
  // Good for both ranks, and for none else.
  const std::string two = Write("two.json", R"({"train_batch_size": 8,
      "tensor_parallel": {"autotp_size": 2}})");
  EXPECT_EQ(Dsrun({"--num_gpus", "2", "--device", "cpu", "plan", "--fit", "--model", "gpt2-30m",
                   "--memory", "80G", "--deepspeed_config", two})
                .status,
            0);
  // `train` refuses such samples.
  EXPECT_THAT(refusal({"--fit", "--model", "gpt2-30m", "--memory", "2G", "--seq_len", "4096"}),
              HasSubstr("which has 1024 positions; --seq_len 1024 fits"));
  EXPECT_THAT(refusal({"--memory", "2G", "--", "prog"}), HasSubstr("--memory needs --fit, too"));
  EXPECT_THAT(refusal({"--fit", "--model", "gpt2-30m", "--memory", "2G", "--mesh", "tensor=2"}),
              HasSubstr("leave --mesh out"));
  EXPECT_THAT(refusal({"--fit", "--model", "gpt2-30m", "--memory", "2G", "--schedule", "gpipe"}),
              HasSubstr("leave --schedule out"));
  EXPECT_THAT(refusal({"--micro_batches", "4", "--", "prog"}),
              HasSubstr("--micro_batches is of the drawing of a pipeline: give --mesh pipeline=N"));
  EXPECT_THAT(
      refusal({"--mesh", "shard=2", "--schedule", "1f1b"}),
      HasSubstr("--schedule is of the drawing of a pipeline: the --mesh needs a pipeline=N"));
}

TEST_F(PlanCommandTest, ShowsSpares) {
  const std::string hosts = Write("hosts", "a slots=2\nb slots=2 spare\nc slots=1 spare\n");
  const ProgramResult table = Dsrun({"-H", hosts, "plan", "--", "prog"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, StartsWith("2 ranks on 1 host,"));
  EXPECT_THAT(table.out, HasSubstr("\nspare, for a lost host with as many slots: b (2 slots)\n"
                                   "spare, for a lost host with as many slots: c (1 slot)\n"));
  EXPECT_THAT(Dsrun({"-H", hosts, "plan", "--json", "--", "prog"}).out,
              HasSubstr(R"("spares":[{"host":"b","slots":[0,1]},{"host":"c","slots":[0]}])"));
}

TEST_F(PlanCommandTest, ShowsHostfileKeysOfAHost) {
  const std::string good =
      Write("good",
            "a slots=2 port=2222 user=me gpus=3,1\nb slots=1\nc slots=1 spare workdir=\"/c d\"\n");
  const ProgramResult table = Dsrun({"-H", good, "plan", "--", "x"});
  EXPECT_THAT(table.out, HasSubstr("  0  a  device 3\n"));
  EXPECT_THAT(table.out, HasSubstr("\na: gpus=3,1 port=2222 user=me\nc: workdir=/c d\n"));
  const ProgramResult json = Dsrun({"-H", good, "plan", "--json", "--", "x"});
  EXPECT_THAT(json.out,
              HasSubstr(R"({"host":"a","slots":[0,1],"gpus":"3,1","port":"2222","user":"me"})"));
  EXPECT_THAT(json.out, HasSubstr(R"({"host":"b","slots":[0]}])"));
  EXPECT_THAT(json.out, HasSubstr(R"("spares":[{"host":"c","slots":[0],"workdir":"/c d"}])"));
}

TEST_F(PlanCommandTest, ShowsWhereTheRanksMeet) {
  const std::string far = Write("far", "a slots=1 address=10.9.8.7\nb slots=1\n");
  EXPECT_THAT(Dsrun({"-H", far, "plan", "--", "x"}).out, HasSubstr("meeting at 10.9.8.7\n"));
  EXPECT_THAT(Dsrun({"-H", far, "--num_nodes", "1", "plan", "--", "x"}).out,
              HasSubstr("meeting at 127.0.0.1\n"));
  EXPECT_THAT(Dsrun({"-H", far, "-i", "b@a", "--master_addr", "m", "plan", "--", "x"}).out,
              HasSubstr("meeting at m\n"));
  const std::string named = Write("named", "me@a slots=1\nb slots=1\n");
  EXPECT_THAT(Dsrun({"-H", named, "plan", "--", "x"}).out, HasSubstr("meeting at a\n"));
}

TEST_F(PlanCommandTest, DrawsAMesh) {
  const std::string hosts = Write("hosts", "a slots=4\nb slots=4\n");
  const ProgramResult table =
      Dsrun({"-H", hosts, "plan", "--mesh", "pipeline=2,tensor=2,expert=2", "--", "prog"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("    6     1      2     2  b  pipeline 1  shard 1  tensor 0\n"));
  EXPECT_THAT(
      table.out,
      HasSubstr(
          "\nmesh, outermost first: pipeline 2 replicate 1 shard 2 sequence 1 tensor 2; expert "
          "2\n"
          "  pipeline (have the stages of one model, first to last): 0,4 | 1,5 | 2,6 | 3,7\n"
          "  data (have samples of their own): 0,2 | 1,3 | 4,6 | 5,7\n"));
  EXPECT_THAT(table.out,
              HasSubstr("\n  tensor (have parts of every matrix): 0-1 | 2-3 | 4-5 | 6-7\n"
                        "  experts (have all experts together): 0,2 | 1,3 | 4,6 | 5,7\n"));
  const std::string json =
      Dsrun({"-H", hosts, "plan", "--json", "--mesh", "shard=8", "--", "prog"}).out;
  EXPECT_THAT(json, HasSubstr(R"("coordinates":{"pipeline":0,"replicate":0,"shard":7,"sequence":0,)"
                              R"("tensor":0}})"));
  EXPECT_THAT(json, HasSubstr(R"("shard":[[0,1,2,3,4,5,6,7]],"replicate":[[0],[1],)"));
}

TEST_F(PlanCommandTest, ShowsTheBlocksOfTheStages) {
  const auto plan = [&](std::vector<std::string> flags) {
    std::vector<std::string> words{"--num_gpus", "2",       "plan",     "--mesh",
                                   "pipeline=2", "--model", "gpt2-demo"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", "prog"});
    return Dsrun(words);
  };
  EXPECT_THAT(plan({}).out,
              HasSubstr("\nblocks of the stages:\n"
                        "  stage 0: DecoderEmbedding, 2 DecoderLayer; 0.46 M parameters\n"
                        "  stage 1: 2 DecoderLayer, LmHead; 0.40 M parameters\n"));
  EXPECT_THAT(plan({"--partition", "type:head", "--json"}).out,
              HasSubstr(R"("stages":[{"stage":0,"chunk":0,"first":0,"end":5,)"));
  // The head has less work than a layer, and the table none.
  EXPECT_THAT(plan({"--partition", "profile", "--json"}).out,
              HasSubstr(R"("stages":[{"stage":0,"chunk":0,"first":0,"end":3,)"));
  const ProgramResult refused = plan({"--partition", "time"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--partition: \"time\" is no way of cutting a pipeline"));
}

// An MLP of 3 x 128 x 176 and a product of 2 x 128 with its bias in each of four layers.
TEST_F(PlanCommandTest, CountsTheMlpNextToExperts) {
  const auto parameters = [&](const std::string& moe) {
    const std::string config =
        Write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, "moe": )" + moe + "}");
    const ProgramResult plan =
        Dsrun({"--num_gpus", "2", "--device", "cpu", "plan", "--json", "--mesh", "pipeline=2",
               "--model", "mixtral-tiny", "--deepspeed_config", config});
    EXPECT_EQ(plan.status, 0) << plan.err;
    std::int64_t sum = 0;
    const auto json = nlohmann::json::parse(plan.out);
    for (const auto& stage : json["stages"]) {
      sum += stage["parameters"].get<std::int64_t>();
    }
    return sum;
  };
  EXPECT_EQ(parameters(R"({"enabled": true, "use_residual": true})") - parameters("{}"),
            4 * (3 * 128 * 176 + 2 * 128 + 2));
}

// The bytes of parameters and gradients are those of any number of micro-batches.
TEST_F(PlanCommandTest, ShowsMemoryAndTrafficOfStages) {
  const auto plan = [&](const std::string& zero, const std::string& micro_batches,
                        const std::vector<std::string>& more = {}) {
    const std::string config = Write(
        "ds.json", R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": )" +
                       micro_batches + R"(, "zero_optimization": {"stage": )" + zero + "}}");
    std::vector<std::string> words{"--num_gpus", "4",         "--device",   "cpu",
                                   "plan",       "--mesh",    "pipeline=2", "--model",
                                   "gpt2-demo",  "--seq_len", "64",         "--deepspeed_config",
                                   config};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = Dsrun(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string text = plan("3", "8");
  EXPECT_THAT(text, HasSubstr("\na rank's step of 8 micro-batches of 2 x 64 tokens, ZeRO stage 3:\n"
                              "  stage 0: holds "));
  EXPECT_THAT(text, HasSubstr("parameters are gathered once a step: stage3_max_live_parameters "
                              "(1000000000) holds the "));
  EXPECT_THAT(plan("1", "8"), HasSubstr("\n    ranks have all parameters and gradients\n"));
  const auto traffic = [&](const std::string& zero, const std::string& micro_batches) {
    const auto json = nlohmann::json::parse(plan(zero, micro_batches, {"--json"}));
    return json["stage_steps"][0]["traffic"];
  };
  const std::string budget = R"(3, "stage3_max_live_parameters": 1000, "reduce_bucket_size": 1000)";
  for (const char* kind : {"all_gather", "reduce_scatter"}) {
    EXPECT_GT(traffic("3", "4")[kind], 0) << kind;
    EXPECT_EQ(traffic("3", "4")[kind], traffic("3", "8")[kind]) << kind;
    // But for what the first and the last micro-batches on their way do else.
    const double few = traffic(budget, "4")[kind], many = traffic(budget, "8")[kind];
    EXPECT_NEAR(many, 2 * few, 0.1 * few) << kind;
  }
  EXPECT_EQ(traffic("3", "8")["between_stages"],
            2 * traffic("3", "4")["between_stages"].get<std::int64_t>());
  const ProgramResult refused = Dsrun({"--num_gpus", "4", "plan", "--seq_len", "64", "--", "x"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--seq_len needs --fit, or --mesh pipeline=N and --model"));
}

TEST_F(PlanCommandTest, ALoadOfExpertsIsOfRanksThatHaveThemBetweenThem) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  const auto plan = [&](const char* mesh) {
    return Dsrun({"--num_gpus", "4", "--device", "cpu", "plan", "--mesh", mesh, "--model",
                  "mixtral-tiny", "--deepspeed_config", config, "--expert_load", "2"});
  };
  EXPECT_EQ(plan("pipeline=2,expert=2").status, 0);
  const ProgramResult refused = plan("pipeline=2,shard=2");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("--expert_load needs expert parallelism: set expert=N in --mesh"));
}

// A step of 32 samples is 32 micro-batches of the one pipeline, as train has it.
TEST_F(PlanCommandTest, TheMeshShowsTheBatchOfARank) {
  const auto plan = [&](const std::string& mesh, const std::string& keys) {
    const std::string config = Write("ds.json", R"({"train_batch_size": 32,
        "train_micro_batch_size_per_gpu": 1)" + keys +
                                                    "}");
    return Dsrun({"--num_gpus", "4", "--device", "cpu", "plan", "--json", "--mesh", mesh, "--model",
                  "gpt2-30m", "--deepspeed_config", config});
  };
  const auto micro_batches = [&](const std::string& mesh) {
    return nlohmann::json::parse(plan(mesh, "").out)["schedule"]["micro_batches"];
  };
  EXPECT_EQ(micro_batches("pipeline=4"), 32);
  EXPECT_EQ(micro_batches("pipeline=2,tensor=2"), 32);
  EXPECT_EQ(micro_batches("pipeline=2"), 16);
  const auto peak = [&](const std::string& keys) {
    const auto json = nlohmann::json::parse(plan("pipeline=2", keys).out);
    return json["stage_steps"][0]["peak"].get<std::int64_t>();
  };
  const std::string by_tokens = R"(, "data_efficiency": {"enabled": true, "data_sampling":
      {"enabled": true, "dynamic_batching": {"enabled": true, "max_tokens": 8192}}})";
  EXPECT_GT(peak(by_tokens), peak(""));
  const ProgramResult refused = plan("pipeline=2", R"(, "gradient_accumulation_steps": 8)");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, Not(HasSubstr("--fit")));
}

TEST_F(PlanCommandTest, AStepWithBatchesByTokensIsDescribedByTokens) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 1,
      "data_efficiency": {"enabled": true, "data_sampling": {"enabled": true,
          "dynamic_batching": {"enabled": true, "max_tokens": 8192}}}})");
  const ProgramResult plan =
      Dsrun({"--num_gpus", "2", "--device", "cpu", "plan", "--mesh", "pipeline=2", "--model",
             "gpt2-30m", "--deepspeed_config", config});
  EXPECT_THAT(plan.out, HasSubstr("of 1 x up to 8192 tokens before padding, ZeRO stage 0:"))
      << plan.err;
}

// The shards of ZeRO, by which memory is cut, are those of the mesh, however many micro-batches a
// step has.
TEST_F(PlanCommandTest, ThePartitionByMemoryUsesTheRequestedMicroBatches) {
  const auto cut = [&](int in_config, const std::vector<std::string>& flags) {
    const std::string config = Write(
        "ds.json", R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": )" +
                       std::to_string(in_config) +
                       R"(, "optimizer": {"type": "Adam"}, "zero_optimization": {"stage": 3},
                                 "pipeline": {"stages": 2, "partition": "memory"}})");
    std::vector<std::string> words = {
        "--num_gpus", "8",      "--device",           "cpu",     "plan",
        "--json",     "--mesh", "pipeline=2",         "--model", "gpt2-30m",
        "--seq_len",  "64",     "--deepspeed_config", config};
    words.insert(words.end(), flags.begin(), flags.end());
    const ProgramResult plan = Dsrun(words);
    EXPECT_EQ(plan.status, 0) << plan.err;
    return nlohmann::json::parse(plan.out)["stages"][0]["end"].get<int>();
  };
  const int asked = cut(16, {});
  EXPECT_EQ(cut(2, {"--micro_batches", "16"}), asked);
  EXPECT_EQ(asked, 5);  // of one shard in place of four it would be 2
}

TEST_F(PlanCommandTest, DrawsThePartitionByMemoryOfAConfig) {
  const std::string config = Write("ds.json", R"({"train_micro_batch_size_per_gpu": 8,
      "gradient_accumulation_steps": 8, "pipeline": {"stages": 2, "partition": "memory"}})");
  const ProgramResult plan =
      Dsrun({"--num_gpus", "2", "--device", "cpu", "plan", "--json", "--mesh", "pipeline=2",
             "--model", "gpt2-30m", "--deepspeed_config", config});
  ASSERT_EQ(plan.status, 0) << plan.err;
  const auto stages = nlohmann::json::parse(plan.out)["stages"];
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_GT(stages[0]["end"], 0);
  EXPECT_EQ(stages[0]["end"], stages[1]["first"]);
  // Without a job there is nothing to cut by.
  const ProgramResult refused =
      Dsrun({"--num_gpus", "2", "--device", "cpu", "plan", "--mesh", "pipeline=2", "--model",
             "gpt2-30m", "--partition", "memory"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--partition: \"memory\" is no way"));
}

TEST_F(PlanCommandTest, RefusesAMeshThatDoesNotFit) {
  const auto refusal = [&](std::vector<std::string> flags) {
    std::vector<std::string> words{"--num_gpus", "8", "plan"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", "prog"});
    const ProgramResult result = Dsrun(words);
    EXPECT_EQ(result.status, 2);
    return result.err;
  };
  EXPECT_THAT(refusal({"--mesh", "shard=2,tensor=2"}),
              HasSubstr("fewer ranks than the 8 of the job"));
  EXPECT_THAT(refusal({"--mesh", "tensor=3"}), HasSubstr("a mesh of tensor 3"));
  EXPECT_THAT(refusal({"--mesh", "pipeline=8", "--model", "gpt2-demo"}),
              HasSubstr("pipeline 8 asks for more stages than the model has layers"));
  // What the ranks would find: the demo model has four heads.
  EXPECT_THAT(refusal({"--mesh", "tensor=8", "--model", "gpt2-demo"}),
              HasSubstr("cannot shard the model into 8 parts: it has 4 heads"));
  EXPECT_THAT(refusal({"--mesh", "sequence=8", "--model", "gpt2-demo"}),
              HasSubstr("8 sequence ranks cannot share 4 heads"));
  EXPECT_THAT(refusal({"--model", "gpt2-demo"}), HasSubstr("give --mesh, too"));
}

TEST_F(PlanCommandTest, DrawsTheScheduleOfAPipeline) {
  const std::vector<std::string> mesh = {"--num_gpus", "3", "plan", "--mesh", "pipeline=3"};
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), mesh.begin(), mesh.end());
    return Dsrun(more);
  };
  const ProgramResult text = plan({"--micro_batches", "4"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("schedule 1f1b: 3 stages, 4 micro-batches; 33 % of the time is "
                                  "waiting\n"
                                  "          activations held by stage, in micro-batches: 3 2 1\n"
                                  "stage 0   FFF    BBFBB BB BB\n"
                                  "   batch  012    00311 22 33\n"
                                  "stage 1    FF  BBFBBFBB BB\n"
                                  "   batch   01  00211322 33\n"
                                  "stage 2     FBBFBBFBBFBB\n"
                                  "   batch    000111222333\n"));
  EXPECT_THAT(plan({"--micro_batches", "40"}).out,
              HasSubstr("(the first 70 of 126 units of time; --svg FILE draws all)\n"));
  const ProgramResult json =
      plan({"--json", "--schedule", "zb-v", "--micro_batches", "5", "--svg", "step.svg"});
  EXPECT_THAT(json.out, HasSubstr(R"("schedule":{"kind":"zb-v","stages":3,"chunks":2,)"));
  const auto svg = ReadFile(folder_.path() / "step.svg");
  ASSERT_TRUE(svg.ok());
  EXPECT_THAT(*svg, StartsWith("<svg "));
  EXPECT_THAT(*svg, HasSubstr(">W1.4</text>"));
}

TEST_F(PlanCommandTest, RefusesAScheduleThatThereIsNot) {
  const auto error = [&](std::vector<std::string> arguments) {
    const ProgramResult result = Dsrun(arguments);
    EXPECT_EQ(result.status, 2);
    return result.err;
  };
  EXPECT_THAT(error({"--num_gpus", "2", "plan", "--mesh", "pipeline=2", "--schedule", "zb"}),
              HasSubstr("there are gpipe, 1f1b, interleaved, zb-h1, zb-v"));
  EXPECT_THAT(error({"--num_gpus", "2", "plan", "--svg", "x.svg"}),
              HasSubstr("give --mesh pipeline=N, too"));
  EXPECT_THAT(error({"--num_gpus", "2", "plan", "--mesh", "pipeline=2", "--schedule", "interleaved",
                     "--micro_batches", "3"}),
              HasSubstr("a multiple of 2 micro-batches (as 4), not 3"));
}

}  // namespace
}  // namespace ds::testing
