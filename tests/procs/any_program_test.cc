// What a program started by dsrun gets: every byte of its arguments and of its environment,
// whichever way it was given, and its folder, mask and limits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

// Strings that a shell, a printf or a parser of command lines would change, then random bytes.
class ByteStrings {
 public:
  explicit ByteStrings(unsigned seed) : random_(seed) {}

  std::string Any() {
    static const Strings kOdd = {"",     "-",     "--",         "-x",  "--num_gpus=9",
                                 "a b",  "$HOME", "`id`",       "%s",  "*",
                                 "\\n",  "\n",    "it's \"x\"", ";|&", "@DSRUN_JOB_DIR@",
                                 "--=",  "\t",    "=",          "#",   "\xFF\xFE",
                                 "[a,b]"};
    if (Below(4) == 0) return kOdd[Below(kOdd.size())];
    std::string bytes;
    for (std::size_t left = Below(Below(10) == 0 ? 5000 : 40); left > 0; --left) {
      bytes += static_cast<char>(1 + Below(255));
    }
    return bytes;
  }
  // One that may name a variable, and no variable that dsrun or the loader cares for.
  std::string Name() {
    std::string name = "T" + Any();
    std::erase(name, '=');
    return name;
  }
  std::size_t Below(std::size_t bound) { return random_() % bound; }

 private:
  std::mt19937 random_;
};

Strings SplitAtNul(const std::string& text) {
  Strings parts;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\0', start);
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

Variables AsVariables(const Strings& entries) {
  Variables variables;
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

class AnyProgramTest : public ::testing::Test {
 protected:
  // What rank 0 of `dsrun flags -- test_rank arguments` prints.
  std::string OutputOf(const Strings& flags, const Strings& arguments,
                       const ProgramOptions& options = {}) {
    const fs::path run = folder_.path() / ("run-" + std::to_string(runs_++));
    Strings command = {DS_BIN_DIR "/dsrun", "-q", "--device",  "cpu",
                       "--num_gpus",        "1",  "--run_dir", run.string()};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", DS_TEST_RANK});
    command.insert(command.end(), arguments.begin(), arguments.end());
    const ProgramResult result = RunProgram(command, options);
    EXPECT_EQ(result.status, 0) << result.err;
    job_ = *ReadFile(run / "job.json");
    return *ReadFile(run / "logs/0/rank-00000.out");
  }
  Variables EnvironmentOf(const Strings& flags, const ProgramOptions& options = {}) {
    return AsVariables(SplitAtNul(OutputOf(flags, {"environment"}, options)));
  }
  std::string Write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
    return (folder_.path() / name).string();
  }

  TemporaryFolder folder_;
  std::string job_;  // job.json of the last run
  int runs_ = 0;
};

TEST_F(AnyProgramTest, ArgumentsArriveByteForByte) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    ByteStrings bytes(seed);
    Strings arguments = {"arguments"};
    for (std::size_t left = bytes.Below(100); left > 0; --left) arguments.push_back(bytes.Any());
    const Strings sent(arguments.begin() + 1, arguments.end());
    ASSERT_EQ(SplitAtNul(OutputOf({}, arguments)), sent) << "seed " << seed;
  }
}

TEST_F(AnyProgramTest, NamesOfFilesNeedNotBeText) {
  const fs::path here = folder_.path() / "d\xFF \n";
  fs::create_directory(here);
  fs::copy_file(DS_TEST_RANK, here / "p\xFE '");
  const Strings command = {DS_BIN_DIR "/dsrun", "-q", "--device", "cpu", "--num_gpus", "1"};
  const auto run = [&](const std::string& folder, const Strings& more) {
    Strings all = command;
    all.insert(all.end(), {"--run_dir", (folder_.path() / folder).string()});
    all.insert(all.end(), more.begin(), more.end());
    return RunProgram(all, {.working_directory = here});
  };
  const ProgramResult good = run("good", {"--", "./p\xFE '", "arguments", "\xFD"});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(*ReadFile(folder_.path() / "good/logs/0/rank-00000.out"), std::string("\xFD\0", 2));
  const ProgramResult bad = run("bad", {"--", "./q\xFE"});
  EXPECT_EQ(bad.status, 3) << bad.err;
  EXPECT_THAT(bad.err, HasSubstr("program './q\\xfe'"));
  EXPECT_THAT(bad.err, ::testing::Not(HasSubstr("protobuf")));
}

TEST_F(AnyProgramTest, TheEnvironmentArrivesByteForByte) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    ByteStrings bytes(seed);
    Variables sent;
    ProgramOptions options;  // this shell's
    Strings flags;           // -x, over it
    for (std::size_t left = bytes.Below(60); left > 0; --left) {
      const auto& [name, value] = *sent.insert_or_assign(bytes.Name(), bytes.Any()).first;
      options.environment.push_back(name + "=" + value);
    }
    for (std::size_t left = bytes.Below(40); left > 0; --left) {
      const auto& [name, value] = *sent.insert_or_assign(bytes.Name(), bytes.Any()).first;
      flags.insert(flags.end(), {"-x", name + "=" + value});
    }
    const Variables got = EnvironmentOf(flags, options);
    for (const auto& [name, value] : sent) {
      ASSERT_TRUE(got.contains(name)) << "seed " << seed;
      ASSERT_EQ(got.at(name), value) << "seed " << seed;
    }
  }
}

TEST_F(AnyProgramTest, ExportsByNamePatternAndFile) {
  const std::string file = Write("env", "# ours\nFROM_FILE='a $b'\nexport BOTH=file\n");
  const Variables got = EnvironmentOf(
      {"--env_file", file, "-x", "BOTH=flag", "-x", "NCCL_DEBUG", "-x", "T_*", "-x", "T_2=two"},
      {.environment = {"NCCL_DEBUG=INFO", "T_1=1", "T_2=2"}});
  EXPECT_EQ(got.at("FROM_FILE"), "a $b");
  EXPECT_EQ(got.at("BOTH"), "flag");
  EXPECT_EQ(got.at("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(got.at("T_1"), "1");
  EXPECT_EQ(got.at("T_2"), "two");
}

TEST_F(AnyProgramTest, DeepSpeedsEnvFileIsReadFromHomeThenHere) {
  fs::create_directories(folder_.path() / "home");
  fs::create_directories(folder_.path() / "here");
  Write("home/.deepspeed_env", "A=home\nB=home\n");
  Write("here/.deepspeed_env", "\n#C=1\nB=here\n");
  ProgramOptions options{.environment = {"HOME=" + (folder_.path() / "home").string()},
                         .working_directory = folder_.path() / "here"};
  Variables got = EnvironmentOf({}, options);
  EXPECT_EQ(got.at("A"), "home");
  EXPECT_EQ(got.at("B"), "here");
  EXPECT_FALSE(got.contains("C"));
  options.environment.push_back("DS_ENV_FILE=" + Write("other", "A=other\n"));
  got = EnvironmentOf({}, options);
  EXPECT_EQ(got.at("A"), "other");
  EXPECT_FALSE(got.contains("B"));
}

TEST_F(AnyProgramTest, RefusesInvalidExportsBeforeAnythingRuns) {
  const std::string bad = Write("bad", "A=1\nB\n");
  for (const auto& [flags, message] : std::vector<std::pair<Strings, std::string>>{
           {{"-x", "NOT_SET_HERE"},
            "dsrun: -x NOT_SET_HERE: NOT_SET_HERE is not set in this shell"},
           {{"--env_file", bad}, "dsrun: " + bad + ":2: expected NAME=VALUE, found no '='"},
           {{"--env_file", "/no/such/file"}, "/no/such/file: No such file or directory"}}) {
    Strings command = {DS_BIN_DIR "/dsrun", "--run_dir", (folder_.path() / "none").string()};
    command.insert(command.end(), flags.begin(), flags.end());
    command.push_back("/bin/true");
    const ProgramResult result = RunProgram(command);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_FALSE(fs::exists(folder_.path() / "none"));
  }
}

TEST_F(AnyProgramTest, APythonExceptionIsTheVerdictsCause) {
  // What @record of PyTorch does when main() raises.
  const std::string script =
      "echo noise >&2; [ $RANK = 1 ] || exec sleep 60; "
      R"(printf '{"message":{"message":"ValueError: no column","extraInfo":{"py_callstack":)"
      R"("Traceback:\\n  line 3\\nValueError: no column\\n"}}}' > "$TORCHELASTIC_ERROR_FILE"; exit 1)";
  const std::string run = (folder_.path() / "raises").string();
  const ProgramResult result = RunProgram(
      {DS_BIN_DIR "/dsrun", "--num_gpus", "2", "--run_dir", run, "--", "/bin/sh", "-c", script});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err,
              HasSubstr("the job failed: rank 1 on localhost raised ValueError: no column"));
  EXPECT_THAT(result.err, HasSubstr("    |   line 3\n"));
  const auto verdict = nlohmann::json::parse(*ReadFile(run + "/verdict.json"));
  EXPECT_EQ(verdict["cause"], "exception");
}

TEST_F(AnyProgramTest, AnInvalidErrorFileIsHarmless) {
  for (const char* make :
       {"mkfifo \"$TORCHELASTIC_ERROR_FILE\"", "mkdir \"$TORCHELASTIC_ERROR_FILE\"",
        "echo garbage > \"$TORCHELASTIC_ERROR_FILE\"",
        "ln -s /dev/zero \"$TORCHELASTIC_ERROR_FILE\""}) {
    const ProgramResult result =
        RunProgram({DS_BIN_DIR "/dsrun", "--run_dir", (folder_.path() / "odd").string(), "--",
                    "/bin/sh", "-c", std::string(make) + "; exit 9"});
    EXPECT_EQ(result.status, 9) << make << result.err;
    fs::remove_all(folder_.path() / "odd");
  }
}

TEST_F(AnyProgramTest, RanksGetTheVariablesOfTorchrun) {
  const Variables got =
      EnvironmentOf({"--nproc_per_node", "1", "--rdzv_id", "mine", "--max_restarts", "3"});
  EXPECT_EQ(got.at("TORCHELASTIC_RUN_ID"), "mine");
  EXPECT_EQ(got.at("TORCHELASTIC_MAX_RESTARTS"), "3");
  EXPECT_EQ(got.at("TORCHELASTIC_RESTART_COUNT"), "0");
  EXPECT_EQ(got.at("TORCHELASTIC_USE_AGENT_STORE"), "False");
  EXPECT_EQ(got.at("GROUP_WORLD_SIZE"), "1");
  EXPECT_EQ(got.at("ROLE_NAME"), "default");
  EXPECT_THAT(got.at("TORCHELASTIC_ERROR_FILE"), HasSubstr("/error-0.json"));
}

TEST_F(AnyProgramTest, SecretsReachTheRankButNoFile) {
  const std::string file = Write("env", "DB_PASSWORD=hunter2\n");
  const Variables got =
      EnvironmentOf({"-x", "HF_TOKEN=s3cret", "-x", "PLAIN=harmless", "--env_file", file});
  EXPECT_EQ(got.at("HF_TOKEN"), "s3cret");
  EXPECT_EQ(got.at("DB_PASSWORD"), "hunter2");
  EXPECT_EQ(job_.find("s3cret"), std::string::npos) << job_;
  EXPECT_EQ(job_.find("hunter2"), std::string::npos) << job_;
  EXPECT_EQ(job_.find("harmless"), std::string::npos) << "exports are named: " << job_;
  const auto job = nlohmann::json::parse(job_);
  EXPECT_EQ(job["exports"], nlohmann::json({"DB_PASSWORD", "HF_TOKEN", "PLAIN"}));
  EXPECT_EQ(job["launch"]["exports"], nlohmann::json({"HF_TOKEN", "PLAIN"}));
  EXPECT_EQ(job["redacted"]["exports"], nlohmann::json({"HF_TOKEN", "PLAIN"}));
  EXPECT_EQ(job["launch"]["env_files"], nlohmann::json({file}));
}

TEST_F(AnyProgramTest, ValuesOfGluedFlagsReachNoFile) {
  const std::string run = (folder_.path() / "glued").string();
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "-qx", "A=harm1", "-qxB=harm2", "--run_dir", run, "run",
                  "-qx", "C=harm3", "--", "/bin/sh", "-c", "echo $A $B $C; exit 5", "A=harm4"});
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_THAT(*ReadFile(run + "/logs/0/rank-00000.out"), HasSubstr("harm1 harm2 harm3"));
  const auto line = nlohmann::json::parse(*ReadFile(run + "/job.json"))["command_line"];
  EXPECT_EQ(line[2], "A=<redacted>");
  EXPECT_EQ(line[3], "-qxB=<redacted>");
  EXPECT_EQ(line[8], "C=<redacted>");
  EXPECT_EQ(line.back(), "A=harm4") << "the program's own word";
}

// What job.json shows, given to dsrun again, starts nothing that would take the mark for a secret.
TEST_F(AnyProgramTest, ARedactedCommandLineStartsNothing) {
  const std::string run = (folder_.path() / "first").string();
  ASSERT_EQ(RunProgram({DS_BIN_DIR "/dsrun", "-x", "A=1", "--run_dir", run, "--", "/bin/echo",
                        "--api-key", "hunter2"})
                .status,
            0);
  auto line = nlohmann::json::parse(*ReadFile(run + "/job.json"))["command_line"]
                  .get<std::vector<std::string>>();
  fs::remove_all(run);
  const ProgramResult again = RunProgram(line);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("-x A=<redacted>, --api-key <redacted>; give the values"));
  EXPECT_FALSE(fs::exists(run));
  line.insert(line.begin() + 1, "plan");
  EXPECT_EQ(RunProgram(line).status, 0) << "it starts nothing";
}

TEST_F(AnyProgramTest, AWordThatOnlyLooksRedactedIsTheProgramsOwn) {
  const std::string run = (folder_.path() / "run").string();
  const ProgramResult result = RunProgram({DS_BIN_DIR "/dsrun", "--run_dir", run, "--", "/bin/echo",
                                           "--mask_token", "<redacted>", "--api-key", "hunter2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("--mask_token <redacted> --api-key hunter2"));
  const auto job = nlohmann::json::parse(*ReadFile(run + "/job.json"));
  EXPECT_EQ(job["argv"].back(), "<redacted>");
  EXPECT_EQ(job["redacted"]["argv"], nlohmann::json({4})) << "behind --api-key";
}

TEST_F(AnyProgramTest, ValuesOfSecretNamesReachTheRankButNoFile) {
  const std::string run = (folder_.path() / "private").string();
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "--run_dir", run, "--", "/bin/echo", "--api-key", "hunter2",
                  "DB_PASSWORD=hunter3", "postgres://user:known@host/db"});
  EXPECT_THAT(result.out,
              HasSubstr("--api-key hunter2 DB_PASSWORD=hunter3 postgres://user:known@host/db"));
  const std::string job = *ReadFile(run + "/job.json");
  EXPECT_THAT(job, HasSubstr("/bin/echo"));
  EXPECT_THAT(job, ::testing::Not(HasSubstr("hunter")));
  EXPECT_THAT(job, HasSubstr("postgres://user:known@host/db")) << "only names are looked at";
  struct stat info {};
  ASSERT_EQ(::stat((run + "/job.json").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

// The command line may hold secrets that nobody can know: job.json is private whatever the umask.
TEST_F(AnyProgramTest, OtherFilesOfARunFollowTheUmask) {
  for (const auto& [mask, mode] : {std::pair("077", 0600U), std::pair("0", 0644U)}) {
    const fs::path run = folder_.path() / (std::string("mask") + mask);
    const ProgramResult result =
        RunProgram({"/bin/sh", "-c", std::string("umask ") + mask + " && exec \"$@\"", "sh",
                    DS_BIN_DIR "/dsrun", "--run_dir", run.string(), "--", "/bin/sh", "-c",
                    "echo out; exit 9"});
    ASSERT_EQ(result.status, 9) << result.err;
    const auto mode_of = [&run](const std::string& name) {
      struct stat info {};
      EXPECT_EQ(::stat((run / name).c_str(), &info), 0) << name;
      return info.st_mode & 0777;
    };
    EXPECT_EQ(mode_of("job.json"), 0600U);
    for (const std::string name : {"verdict.json", "events.jsonl", "logs/0/rank-00000.out"}) {
      EXPECT_EQ(mode_of(name), mode) << name << " with umask " << mask;
    }
    EXPECT_EQ(mode_of("logs"), mode == 0600 ? 0700U : 0777U);
  }
}

TEST_F(AnyProgramTest, PlanShowsTheExportsWithoutTheSecrets) {
  const ProgramResult result =
      RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "1", "-x", "HF_TOKEN=s3cret", "-x", "A=1",
                  "-x", "OMP_NUM_THREADS=3", "plan", "--json", "--", "prog"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto environment = nlohmann::json::parse(result.out)["ranks"][0]["env"];
  EXPECT_EQ(environment["A"], "1");
  EXPECT_EQ(environment["OMP_NUM_THREADS"], "3");
  EXPECT_EQ(environment["HF_TOKEN"], "<redacted>");
}

// A dump of another job's environment, as Accelerate appends it to .deepspeed_env.
TEST_F(AnyProgramTest, PlanShowsTheEnvironmentOfRanks) {
  const std::string file =
      Write("dump.env", "RANK=3\nMASTER_PORT=12802\nNCCL_DEBUG=INFO\nA=$HOME:x\nGROUP_RANK=9\n");
  const Strings flags = {"--env_file", file, "-x", "B=2"};
  const Variables got = EnvironmentOf(flags);
  Strings words = {DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", "1"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), {"plan", "--json", "--", "prog"});
  const ProgramResult plan = RunProgram(words);
  ASSERT_EQ(plan.status, 0) << plan.err;
  const auto shown = nlohmann::json::parse(plan.out)["ranks"][0]["env"];
  EXPECT_FALSE(shown.contains("MASTER_PORT")) << "nobody knows it yet";
  EXPECT_EQ(shown.value("A", ""), "$HOME:x");
  for (const auto& [name, value] : shown.items()) EXPECT_EQ(got.at(name), value) << name;
  EXPECT_THAT(plan.err, HasSubstr(file + ": the $ in A stays as it is written"));
  EXPECT_THAT(plan.err, HasSubstr(file + ": RANK, MASTER_PORT, GROUP_RANK have no effect"));
}

TEST_F(AnyProgramTest, FolderMaskAndLimits) {
  const std::string text = OutputOf({"--workdir", folder_.path().string(), "--umask", "027",
                                     "--ulimit", "nofile=100:200", "--ulimit", "core=0"},
                                    {"process"});
  EXPECT_THAT(text,
              HasSubstr("working_directory " + fs::canonical(folder_.path()).string() + "\n"));
  EXPECT_THAT(text, HasSubstr("umask 027\n"));
  EXPECT_THAT(text, HasSubstr("nofile 100 200\n"));
}

// Eight ranks need more than 80. dsrun raises the limit for itself and for dsrund.
TEST_F(AnyProgramTest, ALowSoftLimitOfOpenFilesIsNoObstacleAndTheRanksKeepIt) {
  const ProgramResult result =
      RunProgram({"/bin/sh", "-c", "ulimit -Sn 80 && exec \"$@\"", "sh", DS_BIN_DIR "/dsrun",
                  "--device", "cpu", "--run_dir", (folder_.path() / "run").string(), "--num_gpus",
                  "8", "--", "/bin/sh", "-c", "ulimit -Sn"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[0-7] 80 (x8)\n"));
}

// The largest file is in blocks of 512 bytes.
TEST_F(AnyProgramTest, ALogLargerThanAnyFileMayBeIsAnErrorOfTheRunDirectory) {
  const fs::path run = folder_.path() / "run";
  const ProgramResult result =
      RunProgram({"/bin/sh", "-c", "ulimit -f 64 && exec \"$@\"", "sh", DS_BIN_DIR "/dsrun",
                  "--device", "cpu", "--run_dir", run.string(), "--num_gpus", "1", "--", "/bin/sh",
                  "-c", "head -c 100000 /dev/zero; sleep 600"});
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("File too large"));
  EXPECT_TRUE(fs::exists(run / "verdict.json"));
}

TEST_F(AnyProgramTest, ALimitThatCannotBeSetIsNamed) {
  const ProgramResult result = RunProgram({DS_BIN_DIR "/dsrun", "--device", "cpu", "--run_dir",
                                           (folder_.path() / "run").string(), "--ulimit",
                                           "nofile=4611686018427387904", "/bin/true"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("--ulimit"));
}

}  // namespace
}  // namespace ds::testing
