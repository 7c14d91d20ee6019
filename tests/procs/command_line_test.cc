// What dsrun says and returns when the command line, a hostfile, a config or the installation is
// wrong: the exact words and the documented status, with nothing started. Lines that need no more
// than that are cases of command_line_cases_test.cc.

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

TEST_F(CommandLineTest, EmptyValuesOfAProgramAreItsOwn) {
  const ProgramResult plan =
      Dsrun({"--num_gpus", "1", "plan", "--json", "--", "/bin/true", "--x="});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("--x="));
}

TEST_F(CommandLineTest, ReportTakesTheFlagsOfItsJob) {
  const std::string localhost = std::string(kExamples) + "localhost";
  EXPECT_NE(Dsrun({"-H", localhost, "--device", "cpu", "report"}).status, 2);
}

TEST_F(CommandLineTest, AnotherMachineIsRefusedNotReplacedByThisOne) {
  const ProgramResult result =
      Dsrun({"-H", std::string(kExamples) + "two_hosts", "--ssh_timeout", "1", "/bin/true"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("2 of 2 hosts cannot be used:\n"));
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
  EXPECT_THAT(passed.err, HasSubstr("unknown keys are ignored: comms_config\n"));
  EXPECT_THAT(passed.out, HasSubstr("total_num_steps = \"auto\", \"auto\" at "));
  // {"train_batch_size": 8}
  EXPECT_THAT(Dsrun({"check", "eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0="}).out,
              HasSubstr("the base64 config is good for 1 rank"));
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

TEST_F(CommandLineTest, EstimatePrintsATable) {
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
