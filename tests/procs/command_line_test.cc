// What dsrun says and returns when the command line, a hostfile, a config or the installation is
// wrong: the exact words and the documented status, with nothing started.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kExamples[] = DS_SOURCE_DIR "/hostfile_examples/";

class CommandLineTest : public ::testing::Test {
 protected:
  ProgramResult Dsrun(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), (programs_ / "dsrun").string());
    return RunProgram(arguments, {.working_directory = folder_.path()});
  }
  // Refused before anything was started: one line on stderr, status 2, no run directory.
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& message) {
    const ProgramResult result = Dsrun(arguments);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_EQ(result.err, "dsrun: " + message + "\n");
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(fs::exists(folder_.path() / "runs"));
  }
  std::string Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
    return (folder_.path() / name).string();
  }

  TemporaryFolder folder_;
  fs::path programs_ = DS_BIN_DIR;
};

TEST_F(CommandLineTest, VersionAndHelpSucceed) {
  EXPECT_THAT(Dsrun({"--version"}).out, StartsWith("dsrun "));
  // What must be rebuilt when a library has a hole.
  for (const char* library : {"gRPC", "Protobuf", "OpenSSL", "libssh", "spdlog", "CLI11", "zlib"}) {
    EXPECT_THAT(Dsrun({"version"}).out,
                ContainsRegex(std::string("\n  ") + library + " .*[0-9]+\\.[0-9]+"));
  }
  EXPECT_THAT(Dsrun({"version"}).out, ContainsRegex("\n  RE2 +[0-9]+"));
  EXPECT_EQ(Dsrun({"version"}).out, Dsrun({"--version"}).out);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--help"}, {"-h"}, {"help"}}) {
    const ProgramResult result = Dsrun(words);
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, HasSubstr("--hostfile"));
    EXPECT_THAT(result.out, HasSubstr("resume"));
  }
  for (const char* command : {"train", "resume", "run", "plan", "check", "elastic", "estimate",
                              "bench", "tokenize", "generate", "translate", "completion"}) {
    const ProgramResult result = Dsrun({command, "--help"});
    EXPECT_EQ(result.status, 0) << command;
    EXPECT_THAT(result.out, HasSubstr(command));
    EXPECT_EQ(Dsrun({"help", command}).out, result.out);
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST_F(CommandLineTest, BenchRefusesUnknownMeasurements) {
  ExpectRefused({"bench"}, "bench: name a measurement: bench comm, bench io PATH or bench memory");
  ExpectRefused({"bench", "com"},
                "bench: 'com' cannot be measured; try bench comm, bench io or bench memory; did "
                "you mean 'comm'?");
  ExpectRefused({"bench", "comm", "--trails", "3"},
                "unknown flag --trails; did you mean '--trials'?");
  ExpectRefused({"bench", "comm", "--max_size", "1.5M"},
                "--max_size 1.5M: give bytes from 1 to 64G, for example 65536, 64K or 1M");
  ExpectRefused({"bench", "comm", "--min_size", "2M", "--max_size", "1M"},
                "bench: --max_size 1M is less than --min_size 2M");
  ExpectRefused({"--num_gpus", "1", "--device", "cpu", "bench", "comm"},
                "bench: comm needs at least two ranks; give --num_gpus N or a hostfile");
}

TEST_F(CommandLineTest, UnknownWordsGetASuggestion) {
  ExpectRefused({}, "no command or program given; see dsrun --help");
  ExpectRefused({"tran"}, "'tran' is neither a command nor a program here; did you mean 'train'?");
  ExpectRefused({"--num_gpu", "2", "train"}, "unknown flag --num_gpu; did you mean '--num_gpus'?");
  ExpectRefused({"train", "--step", "2"}, "unknown flag --step; did you mean '--steps'?");
  ExpectRefused({"train", "now"}, "unexpected argument 'now'");
  ExpectRefused({"help", "tran"}, "no command or page 'tran'; did you mean 'train'?");
  ExpectRefused({"help", "trane"}, "no command or page 'trane'; did you mean 'train'?");
  ExpectRefused({"help", "metrik"}, "no command or page 'metrik'; did you mean 'metrics'?");
  ExpectRefused({"help", "xyzzy"}, "no command or page 'xyzzy'; see dsrun help");
  ExpectRefused({"--master_port", "70000", "train"},
                "--master_port: 70000 is not a whole number from 0 to 65535");
  ExpectRefused(
      {"--elastic_training", "train"},
      "--elastic_training is not supported: there is no elastic mode; see --max_restarts");
}

TEST_F(CommandLineTest, CommandsOfOtherProgramsAreExplained) {
  const std::string meaning =
      "there is no command 'export': `dsrun resume RUN --save_hf DIR` writes the model of a run "
      "as "
      "a Hugging Face folder; so does `dsrun train --save_hf DIR` at its end";
  ExpectRefused({"export", "runs/x"}, meaning);
  ExpectRefused({"help", "export"}, meaning);
  EXPECT_THAT(Dsrun({"help", "chat"}).out, StartsWith("# chat: ")) << "a page";
}

TEST_F(CommandLineTest, AFlagWithoutItsValueDoesNotTakeTheProgramForIt) {
  const auto refusal = [](const std::string& flag) {
    return flag + " has no value; give one or leave the flag out";
  };
  ExpectRefused({"--include=", "/bin/true"}, refusal("--include="));
  ExpectRefused({"--num_gpus", "2", "--run-dir=", "train"}, refusal("--run-dir="));
  ExpectRefused({"train", "--model=", "--steps", "2"}, refusal("--model="));
  // Behind the program every word is the program's.
  const ProgramResult plan =
      Dsrun({"--num_gpus", "1", "plan", "--json", "--", "/bin/true", "--x="});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("--x="));
}

TEST_F(CommandLineTest, LaunchFlagsInFrontOfACommandThatHasNoUseForThemAreRefused) {
  const auto refusal = [](const std::string& flag, const std::string& command) {
    return flag + " is not valid before '" + command +
           "'; leave it out (flags of the command go after its name)";
  };
  const std::string config = Write("g.json", R"({"train_batch_size": 8})");
  for (const char* command :
       {"check", "elastic", "estimate", "checkpoint", "tokenize", "version", "help"}) {
    ExpectRefused({"--num_gpus", "2", command}, refusal("--num_gpus", command));
    ExpectRefused({"-q", command}, refusal("--quiet", command));
    ExpectRefused({"--no-local-rank", command}, refusal("--no_local_rank", command));
  }
  ExpectRefused({"-x", "A=1", "check", config}, refusal("--export", "check"));
  ExpectRefused({"--num_gpus", "2", "report"}, refusal("--num_gpus", "report"));
  ExpectRefused({"report", "--num_gpus", "2"}, "unknown flag --num_gpus");
  EXPECT_EQ(Dsrun({"--log_level", "error", "check", config}).status, 0);
  const std::string localhost = std::string(kExamples) + "localhost";
  EXPECT_NE(Dsrun({"-H", localhost, "--run_dir", "runs", "report"}).status, 2);
}

TEST_F(CommandLineTest, HostfilesAreRefusedWithFileAndLine) {
  const std::string invalid = std::string(kExamples) + "invalid/";
  ExpectRefused({"-H", "nope", "train"}, "--hostfile nope: No such file or directory");
  ExpectRefused({"-H", "\x1b[2Jnope", "train"},
                "--hostfile \\x1b[2Jnope: No such file or directory");
  ExpectRefused({"-H", invalid + "duplicate_host", "train"},
                invalid + "duplicate_host:3: host worker-1 is listed twice, first in line 1");
  ExpectRefused({"-H", invalid + "words_before_slots", "plan"},
                invalid +
                    "words_before_slots:2: expected 'HOST slots=N', found 'this is bad "
                    "slots=1'");
  ExpectRefused({"-H", invalid + "misspelt_key", "/bin/true"},
                invalid +
                    "misspelt_key:1: unknown key 'prot' after slots=4; did you mean 'port'? (a "
                    "comment starts with '#')");
}

TEST_F(CommandLineTest, CoresAreNotBoundTwiceOver) {
  const std::string message =
      "--bind_cores_to_rank contradicts KMP_AFFINITY in the environment; unset one of them";
  for (const char* command : {"plan", "run"}) {
    ExpectRefused({"--num_gpus", "1", "--bind_cores_to_rank", "-x", "KMP_AFFINITY=none", command,
                   "--", "/bin/true"},
                  message);
    const ProgramResult inherited =
        RunProgram({(programs_ / "dsrun").string(), "--num_gpus", "1", "--bind_cores_to_rank",
                    command, "--", "/bin/true"},
                   {.environment = {"KMP_AFFINITY=none"}, .working_directory = folder_.path()});
    EXPECT_EQ(inherited.status, 2) << command;
    EXPECT_EQ(inherited.err, "dsrun: " + message + "\n");
  }
}

TEST_F(CommandLineTest, MoreThanThereIsIsRefused) {
  const std::string localhost = std::string(kExamples) + "localhost";
  ExpectRefused({"-H", localhost, "--num_gpus", "9", "train"},
                "--num_gpus 9: host 'localhost' has 8 slots");
  ExpectRefused({"-H", localhost, "--num_nodes", "2", "train"}, "--num_nodes 2: there is 1 host");
  ExpectRefused({"-H", localhost, "-i", "localhost:8", "train"},
                "--include localhost:8: host 'localhost' has no slot 8 (its slots: 0-7)");
  ExpectRefused({"-H", localhost, "-e", "localhost", "train"},
                "--exclude localhost: no slot is left to run on");
}

TEST_F(CommandLineTest, AnotherMachineIsRefusedNotReplacedByThisOne) {
  const ProgramResult result =
      Dsrun({"-H", std::string(kExamples) + "two_hosts", "--ssh_timeout", "1", "/bin/true"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("2 of 2 hosts cannot be used:\n"));
}

TEST_F(CommandLineTest, ABadConfigIsRefusedWithLineAndColumn) {
  const std::string comma = Write("comma.json", "{\n  \"train_batch_size\": 8,\n,}\n");
  const ProgramResult bad_json = Dsrun({"check", comma});
  EXPECT_EQ(bad_json.status, 2);
  EXPECT_THAT(bad_json.err, StartsWith("error: " + comma + ":3:1: "));
  const std::string key = Write("key.json", "{\n  \"train_batch_sise\": 8\n}\n");
  const ProgramResult bad_key =
      Dsrun({"--num_gpus", "2", "train", "--data", key, "--deepspeed-config", key});
  EXPECT_EQ(bad_key.status, 2);
  EXPECT_THAT(bad_key.err, HasSubstr("dsrun: " + key +
                                     ":2:3: unknown key train_batch_sise; did you mean "
                                     "'train_batch_size'?"));
  EXPECT_FALSE(fs::exists(folder_.path() / "runs"));
  ExpectRefused({"check", "nope.json"}, "nope.json: No such file or directory");
  ExpectRefused({"check"}, "check: no CONFIG given; see dsrun check --help");
}

TEST_F(CommandLineTest, CheckUsesTheWorldSize) {
  const std::string config = Write("c.json", R"({"train_batch_size": 8,
      "train_micro_batch_size_per_gpu": 3})");
  EXPECT_EQ(Dsrun({"check", config, "--world_size", "2"}).status, 2);
  const std::string good = Write("g.json", R"({"train_batch_size": 8})");
  const ProgramResult result = Dsrun({"check", good, "--world_size", "2"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, good +
                            " is good for 2 ranks: 8 samples a step = 4 per rank x 1 accumulated "
                            "x 2, ZeRO stage 0\n");
  const auto resolved =
      nlohmann::json::parse(Dsrun({"check", good, "--json", "--world_size", "2"}).out);
  EXPECT_EQ(resolved["train_micro_batch_size_per_gpu"], 4);
  EXPECT_EQ(resolved["origins"]["train_batch_size"], good + ":1:22");
  const std::string again = Write("again.json", resolved.dump());
  EXPECT_EQ(Dsrun({"check", again, "--world_size", "2"}).status, 0);
  EXPECT_THAT(Dsrun({"check", config, "--json", "--world_size", "2"}).out,
              HasSubstr("\"ok\": false"));
}

TEST_F(CommandLineTest, CheckShowsTheValuesOfAuto) {
  const std::string config = Write("auto.hjson", R"(# Hjson, with "auto"
      train_micro_batch_size_per_gpu: auto
      optimizer: {type: "AdamW", params: {lr: "auto"}}
      zero_optimization: {stage: 3, reduce_bucket_size: "auto"})");
  const ProgramResult result =
      Dsrun({"check", config, "--model", "gpt2-demo", "--learning_rate", "0.25"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("optimizer.params.lr = 0.25, --learning_rate\n"));
  EXPECT_THAT(result.out, HasSubstr("zero_optimization.reduce_bucket_size = "));
  EXPECT_THAT(result.out, HasSubstr("in gpt2-demo\n"));
  EXPECT_THAT(result.out, HasSubstr("8 samples a step = 8 per rank"));
  ExpectRefused(
      {"check", config, "--model", "gpt2-dmeo"},
      "--model gpt2-dmeo: no such folder, config.json or preset; did you mean 'gpt2-demo'?");
  const std::string stray = Write("stray.json", R"({"train_batch_size": 8, "comms_config": {},
      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}})");
  EXPECT_THAT(Dsrun({"check", stray}).err,
              HasSubstr("comms_config (--ignore_unknown_keys ignores unknown keys)\n"));
  const ProgramResult passed = Dsrun({"check", stray, "--ignore_unknown_keys"});
  EXPECT_EQ(passed.status, 0) << passed.err;
  EXPECT_THAT(passed.err, HasSubstr("--ignore_unknown_keys ignores comms_config\n"));
  EXPECT_THAT(passed.out, HasSubstr("total_num_steps = \"auto\", \"auto\" at "));
  // {"train_batch_size": 8}
  EXPECT_THAT(Dsrun({"check", "eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0="}).out,
              HasSubstr("the base64 config is good for 1 rank"));
}

TEST_F(CommandLineTest, ElasticPrintsABatchOrTheReason) {
  const std::string config = Write("e.json", R"({"elasticity": {"enabled": true, "version": 0.1,
      "max_train_batch_size": 24, "micro_batch_sizes": [2, 4, 6]}})");
  EXPECT_EQ(Dsrun({"elastic", "-c", config}).out,
            "train batch size 24\nnumbers of GPUs  1, 2, 3, 4, 6, 12\n");
  EXPECT_EQ(Dsrun({"elastic", "-c", config, "-w", "4", "--json"}).out,
            R"({"final_batch_size":24,"valid_gpus":[1,2,3,4,6,12],"micro_batch_size":6})"
            "\n");
  ExpectRefused({"elastic", "--config", config, "--world-size", "5"},
                config +
                    ": elasticity: 5 is not one of the 6 valid numbers of GPUs for a batch of 24: "
                    "the nearest are 4 and 6");
  ExpectRefused({"elastic"}, "elastic: no config given; use -c CONFIG");
  ExpectRefused({"elastic", "-c", "nope.json"}, "nope.json: No such file or directory");
  const std::string off = Write("off.json", R"({"elasticity": {}})");
  ExpectRefused({"elastic", "-c", off},
                off + ":1:2: elasticity is off: set elasticity.enabled to true");
}

TEST_F(CommandLineTest, CheckComparesWithTheScheduler) {
  const std::string config = Write("e.json", R"({"elasticity": {"enabled": true,
      "max_train_batch_size": 24, "micro_batch_sizes": [2, 4, 6]}})");
  const ProgramResult result =
      RunProgram({(programs_ / "dsrun").string(), "check", config, "--json"},
                 {.environment = {R"(DEEPSPEED_ELASTICITY_CONFIG={"micro_batch_sizes": [2]})"}});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.out, HasSubstr("but the scheduler has seen 2000"));
  EXPECT_EQ(Dsrun({"check", config}).status, 0);
}

TEST_F(CommandLineTest, EstimatePrintsATableOrTheReason) {
  const ProgramResult table = Dsrun({"estimate", "--model", "gpt2-demo"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("ZeRO  offloaded to the host  zero.Init"));
  EXPECT_THAT(table.out, HasSubstr("held by each rank of `dsrun train`"));
  const ProgramResult json =
      Dsrun({"estimate", "--params", "1e3", "--largest-layer-params", "100", "--json"});
  EXPECT_THAT(json.out, StartsWith(R"({"rows":[{"stage":2,"offload_optimizer":true,)"
                                   R"("offload_param":false,"zero_init":false,)"
                                   R"("gpu_bytes":2000,"cpu_bytes":24000},)"));
  EXPECT_THAT(json.out, HasSubstr(R"("rank_bytes":[{"stage":0,"parameters":2000,"gradients":2000,)"
                                  R"("optimizer_state":8000,"master_weights":4000,)"
                                  R"("total":16000},)"));
  ExpectRefused({"estimate"},
                "estimate: give --model, or both --params and --largest_layer_params");
  ExpectRefused({"estimate", "--params", "9"},
                "estimate: give --model, or both --params and --largest_layer_params");
  ExpectRefused({"estimate", "--params", "9", "--model", "x"},
                "estimate: give either --model or --params, not both");
  ExpectRefused({"estimate", "--params", "9.5", "--largest_layer_params", "1"},
                "--params must be a whole number, not '9.5'");
  ExpectRefused({"estimate", "--params", "9", "--largest_layer_params", "10"},
                "estimate: the largest layer has more parameters (10) than the model (9)");
  ExpectRefused({"estimate", "--model", "gpt2-dem"},
                "--model gpt2-dem: no such folder, config.json or preset; did you mean "
                "'gpt2-demo'?");
}

TEST_F(CommandLineTest, TrainInputsThatAreMissingAreRefused) {
  const std::string data = Write("data.txt", "words");
  Write("empty", "");
  fs::create_directories(folder_.path() / "model");
  ExpectRefused({"train", "--model", "model", "--data", data},
                "--model model: the folder has no config.json");
  ExpectRefused({"train", "--data", "nope"}, "--data nope: no such data file or folder");
  ExpectRefused({"train", "--data", "empty"}, "--data empty: the file is empty");
  ExpectRefused({"train", "--data", data, "--deepspeed_config", "nope.json"},
                "--deepspeed_config: nope.json: No such file or directory");
}

TEST_F(CommandLineTest, AnUnwritableRunDirectoryIsRefused) {
  const ProgramResult result = Dsrun({"--run_dir", "/dev/null/run", "/bin/true"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, StartsWith("dsrun: run directory /dev/null/run: "));
  EXPECT_THAT(result.err, HasSubstr("; choose another with --run_dir\n"));
}

TEST_F(CommandLineTest, ResumeRefusesOtherFolders) {
  const std::string here = fs::canonical(folder_.path()).string();
  ExpectRefused({"resume"}, "resume: no RUN_DIR or JOB given");
  ExpectRefused({"resume", "job"}, here + "/runs/job is no run directory: it has no job.json");
  ASSERT_EQ(Dsrun({"--run_dir", "program", "/bin/true"}).status, 0);
  const ProgramResult result = Dsrun({"resume", "./program"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("/program is the run of a program"));
}

TEST_F(CommandLineTest, ResumeNamesTheRunsThatThereAre) {
  for (const char* name : {"runs/llama", "runs/my_gpt"}) {
    fs::create_directories(folder_.path() / name);
    Write(std::string(name) + "/job.json", "{}");
  }
  const auto refusal = [&](const std::string& run) { return Dsrun({"resume", run}).err; };
  EXPECT_THAT(refusal("lama"), ContainsRegex("/runs/lama is no run directory: it has no job.json; "
                                             "the runs in runs: .*llama.*; did you mean 'llama'"));
  EXPECT_THAT(refusal("runs"), HasSubstr("; the runs in runs: "));
  fs::create_directories(folder_.path() / "model");
  EXPECT_THAT(refusal("model"), HasSubstr("/model is no run directory")) << "and lists runs:";
  EXPECT_THAT(refusal("model"), HasSubstr("my_gpt"));
}

TEST_F(CommandLineTest, ResumeTellsSettingsOfTheRunFromFlags) {
  const std::string hosts = Write("hosts", "localhost slots=2\n");
  const ProgramResult refused =
      Dsrun({"-H", hosts, "--num_gpus", "2", "--device", "cpu", "--run_dir", "run", "train",
             "--model", "gpt2-demo", "--per_device_train_batch_size", "9000000"});
  ASSERT_EQ(refused.status, 3) << refused.err << "for its memory, and job.json is written";
  Write("hosts", "localhost slots=1\n");
  const std::string error = "--num_gpus 2: host 'localhost' has 1 slot";
  ExpectRefused({"resume", "./run"}, error +
                                         "; --num_gpus is a setting of the run, which a flag given "
                                         "to resume replaces");
  ExpectRefused({"--num_gpus", "2", "resume", "./run"}, error);
}

class MissingProgramTest : public CommandLineTest {
 protected:
  // dsrun in a folder of its own, beside what `with` names.
  void Install(const std::vector<std::string>& with) {
    programs_ = folder_.path() / "install" / "bin";
    fs::create_directories(programs_);
    fs::copy_file(DS_BIN_DIR "/dsrun", programs_ / "dsrun");
    for (const std::string& name : with)
      fs::copy_file(fs::path(DS_BIN_DIR) / name, programs_ / name);
  }
  std::vector<std::string> Train() {
    return {"train",
            "--model",
            Write("config.json", R"({"model_type": "gpt2"})"),
            "--data",
            Write("data.txt", std::string(300, 'w')),
            "--deepspeed_config",
            Write("c.json", R"({"train_batch_size": 1})")};
  }
};

TEST_F(MissingProgramTest, WithoutDsrund) {
  Install({});
  const ProgramResult result = Dsrun({"--run_dir", "run", "/bin/true"});
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_THAT(*ReadFile(folder_.path() / "run/verdict.json"), HasSubstr("in the folder of dsrun"));
}

TEST_F(MissingProgramTest, WithoutDsrankProgramsRunButTrainingIsRefused) {
  Install({"dsrund"});
  EXPECT_EQ(Dsrun({"/bin/true"}).status, 0);
  const ProgramResult result = Dsrun(Train());
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("this host has no executable dsrank next to its dsrund"));
}

// Resuming is judged before dsrank is needed, so these need none.
class ResumeRefusalTest : public MissingProgramTest {
 protected:
  // A run that has ended with the checkpoints step-2 and step-4.
  ResumeRefusalTest() {
    Install({"dsrund"});
    std::vector<std::string> train = Train();
    train.insert(train.begin(), {"--run_dir", "run"});
    train.insert(train.end(), {"--steps", "4"});
    EXPECT_EQ(Dsrun(train).status, 3);
    checkpoint::CommitSample(root_, 2);
    checkpoint::CommitSample(root_, 4);
  }
  void ExpectRefused6(const std::vector<std::string>& arguments, const std::string& message) {
    const ProgramResult result = Dsrun(arguments);
    EXPECT_EQ(result.status, 6) << message;
    EXPECT_EQ(result.err, "dsrun: " + message + "\n");
  }
  const fs::path root_ = fs::canonical(folder_.path()) / "run" / "checkpoints";
};

TEST_F(ResumeRefusalTest, ARunThatIsFinished) {
  ExpectRefused6({"resume", "./run"}, "nothing to resume: " + (root_ / "step-4").string() +
                                          " has all 4 steps; give more --steps, or --save_hf DIR");
}

TEST_F(ResumeRefusalTest, ARunWithoutACheckpoint) {
  fs::remove_all(root_);
  ExpectRefused6({"resume", "./run"},
                 "cannot resume: there is no checkpoint to resume from in " + root_.string());
}

TEST_F(ResumeRefusalTest, ACheckpointThatIsNotThere) {
  ExpectRefused6({"resume", "./run", "--checkpoint", "step-3"},
                 "cannot resume: there is no checkpoint step-3 in " + root_.string() +
                     " (there is: step-2, step-4)");
}

TEST_F(ResumeRefusalTest, ANamedCheckpointThatIsDamaged) {
  checkpoint::FlipBit(root_ / "step-4" / "rank-00000.bin", 0);
  const ProgramResult result = Dsrun({"resume", "./run", "--checkpoint", "step-4", "--steps", "9"});
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.err,
              StartsWith("dsrun: cannot resume: checkpoint " + (root_ / "step-4").string() +
                         " is damaged: rank-00000.bin: "));
}

TEST_F(ResumeRefusalTest, ADamagedNewestIsPassedOverWithANotice) {
  checkpoint::FlipBit(root_ / "step-4" / "rank-00000.bin", 0);
  const ProgramResult result = Dsrun({"resume", "./run"});
  EXPECT_EQ(result.status, 3) << "there is no dsrank to go on with";
  EXPECT_THAT(result.err, HasSubstr("dsrun: checkpoint " + (root_ / "step-4").string() +
                                    " is skipped: it is damaged: "));
  EXPECT_THAT(result.err, HasSubstr("dsrun: resuming from " + (root_ / "step-2").string() + "\n"));
}

TEST_F(ResumeRefusalTest, AFlagThatHasNoPlaceHere) {
  const ProgramResult result = Dsrun({"--run_dir", "other", "resume", "./run"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err,
            "dsrun: resume: --run_dir is invalid; a run resumes in its own directory\n");
}

}  // namespace
}  // namespace ds::testing
