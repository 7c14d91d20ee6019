// Every command of README.md is run as it is written there, in a folder that looks like a checkout
// with a user's own programs in it, and has to print what its row in kPrinted says. Of a table row
// it is the command in the last column.
//
// Not run here, each for its reason: `scripts/test.sh` (it runs this test), `cmake --install`
// (package_test installs into a folder of its own).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What a command prints that has these words in it; "" is nothing at all. The first row counts.
struct Printed {
  std::string_view words, text;
};

constexpr Printed kPrinted[] = {
    {"scripts/run.sh --hostfile hostfile_examples/localhost", "done; the run directory is"},
    {"train --steps 20", "\nstep 20/20  loss "},
    {"train --model gpt2-demo --data README.md", "\nstep 5/5  loss "},
    {"train --steps 5 --no_decay_on_norms_and_biases", "\nstep 5/5  loss "},
    {"train --recipe gpt2-from-scratch", "\nstep 5/5  loss "},
    {"train --recipe list", "\nlora  "},
    {"translate default_config.yaml", "dsrun --num_gpus 2 train --model MODEL --data DATA"},
    {"translate args.json", "\"type\": \"cosine\""},
    {"tokenize README.md --tokenizer my_model", "tokens.bin: "},
    {"--packing whole --eval_split 0.2", " at step 5\neval loss "},
    {"train --model my_model --data tokens.bin", "\nstep 5/5  loss "},
    {"generate --model trained", R"("prompt":"Hello","text":")"},
    {"plan --json", R"({"world_size":2,"hosts":[{"host":"localhost","slots":[0,1]}])"},
    {"plan --fit --model gpt2-30m", "settings that fit 2.00 GiB a rank, of 8 ranks, 8 on a host, "},
    {"plan --mesh pipeline=4", "\nschedule zb-h1: 4 stages, 6 micro-batches; "},
    {"train --pp 2", "\nstep 5/5  loss "},
    {"run -- /bin/true", ""},
    {"--errors_only", ""},
    {"run -- build/bin/custom_model", "step 100"},
    {"check configs/default_ds_config.json", "is good for 2 ranks"},
    {"estimate --model gpt2-demo --deepspeed_config",
     "\nfits in 2.00 GiB; the largest micro-batch that does: "},
    {"estimate --model gpt2-demo", "\nmodel states only"},
    {"bench comm --max_size 1M", "\n---- Performance of pt2pt on 2 ranks, float32, "},
    {"bench io /tmp", "\nfor the ds_config:\n"},
    {"bench comm --all_reduce", "\n---- Performance of all_reduce on 2 ranks, float32, "},
    {"dsrun report", "\nok    dsrun "},
    {"dsrun help", "\nCommands:\n  train "},
    {"train.py --lr 3e-4", "['--lr', '3e-4']"},
    {"--pass_local_rank train.py",
     "rank 1 of 2 ['--local_rank=1', '--deepspeed_config', 'ds.json']"},
    {"-i localhost:0,1 train.py", "rank 1 of 2 []"},
    {"--env_file job.env", "level WARN"},
    {"--standalone --nproc_per_node 2", "rank 1 of 2 []"},
    {"--hostfile hostfile train.py", "rank 3 of 4 []"},
    {"--num_gpus 2 --log_ranks 0 train.py", "0@localhost: rank 0 of 2 []"},
    {"--num_gpus 2 train.py", "rank 1 of 2 []"},
    {"train.py", "rank 0 of "},
    {"--module package.train", "rank 0 of "},
    {"-np 4 --timestamps", "Z 3@localhost: rank 3 of 4"},
    {"-x HOME -x LR=3e-4", "rank 3 of 4, LR=3e-4"},
    {"--workdir /tmp", "/tmp"},
    {"--bind_cores_to_rank", "rank 0 of 1,"},
    {"--ulimit nofile=4096", "rank 1 of 2, LR=, 4096 files"},
    {"./my_program", "rank 0 of "},
};

// "| `theirs` | `build/bin/ours ...` |": ours; "" for any other line.
std::string CommandOfRow(const std::string& line) {
  const std::size_t program = line.rfind("build/bin/");
  if (!line.starts_with("|") || program == std::string::npos) return "";
  const std::size_t start = line.rfind('`', program) + 1;
  return line.substr(start, line.find('`', start) - start);
}

std::vector<std::string> CommandsOfReadme() {
  std::istringstream readme(*ReadFile(DS_SOURCE_DIR "/README.md"));
  std::vector<std::string> commands;
  for (std::string line; std::getline(readme, line);) {
    for (const char* program : {"    build/bin/", "    scripts/run.sh"}) {
      if (line.starts_with(program)) commands.push_back(line.substr(4));
    }
    if (std::string command = CommandOfRow(line); !command.empty()) {
      commands.push_back(std::move(command));
    }
  }
  return commands;
}

const Printed* FindPrinted(const std::string& command) {
  const auto* found = std::find_if(
      std::begin(kPrinted), std::end(kPrinted),
      [&](const Printed& printed) { return command.find(printed.words) != std::string::npos; });
  return found == std::end(kPrinted) ? nullptr : found;
}

std::vector<std::string> Words(const std::string& command) {
  std::istringstream stream(command);
  return {std::istream_iterator<std::string>(stream), {}};
}

// What the commands call theirs: train.py, package.train, my_program, hostfile, job.env, my_model,
// default_config.yaml, args.json.
void WriteUsersFiles(const fs::path& folder) {
  const std::string script =
      "import os, sys\n"
      "get = os.environ.get\n"
      "print('rank', get('RANK'), 'of', get('WORLD_SIZE'), sys.argv[1:], 'level', "
      "get('NCCL_DEBUG'))\n";
  const std::string program =
      "#!/bin/sh\necho rank $RANK of $WORLD_SIZE, LR=$LR, $(ulimit -n) files\n";
  fs::create_directories(folder / "package");
  ASSERT_TRUE(WriteFileAtomically(folder / "train.py", script).ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "package/train.py", script).ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "my_program", program, 0755).ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "hostfile", "localhost slots=4\n").ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "job.env", "NCCL_DEBUG=WARN\n").ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "default_config.yaml",
                                  "distributed_type: DEEPSPEED\nnum_processes: 2\n"
                                  "deepspeed_config:\n  zero_stage: 2\n")
                  .ok());
  ASSERT_TRUE(WriteFileAtomically(folder / "args.json",
                                  R"({"lr_scheduler_type": "cosine", "max_steps": 5})")
                  .ok());
  const std::string config =
      R"({"model_type": "gpt2", "vocab_size": 512, "n_positions": 256, "n_embd": 32, "n_layer": 1,
          "n_head": 2})";
  fs::create_directories(folder / "my_model");
  ASSERT_TRUE(WriteFileAtomically(folder / "my_model/config.json", config).ok());
  fs::copy_file(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/gpt2.tokenizer.json",
                folder / "my_model/tokenizer.json");
}

TEST(ReadmeTest, EveryCommandRuns) {
  const auto commands = CommandsOfReadme();
  ASSERT_GE(commands.size(), 20u) << "README.md has lost its commands";
  TemporaryFolder folder;
  for (const char* name : {"configs", "hostfile_examples", "scripts", "README.md"}) {
    fs::create_symlink(fs::path(DS_SOURCE_DIR) / name, folder.path() / name);
  }
  // A link of its own: were LibTorch there not whole, setup.sh would remove it.
  const fs::path libtorch = fs::path(DS_SOURCE_DIR) / ".deps/libtorch";  // or it lies elsewhere
  fs::create_directory(folder.path() / ".deps");
  if (fs::exists(libtorch)) fs::create_symlink(libtorch, folder.path() / ".deps/libtorch");
  fs::create_symlink(fs::path(DS_BIN_DIR).parent_path(), folder.path() / "build");
  WriteUsersFiles(folder.path());
  const ProgramOptions options{.environment = {"PIP_NO_INDEX=1"},  // a test fetches nothing
                               .working_directory = folder.path()};
  std::set<const Printed*> unused;
  for (const Printed& printed : kPrinted) unused.insert(&printed);
  for (const std::string& command : commands) {
    const Printed* printed = FindPrinted(command);
    ASSERT_NE(printed, nullptr) << command << ": say in kPrinted what it prints";
    unused.erase(printed);
    const auto result = RunProgram(Words(command), options);
    // A report says 3 on a machine that could not run a job; that is the machine's state, not
    // README's.
    const bool judged = command.find("dsrun report") != std::string::npos && result.status == 3;
    EXPECT_TRUE(result.status == 0 || judged) << command << "\n" << result.out << result.err;
    if (printed->text.empty()) {
      EXPECT_THAT(result.out, IsEmpty()) << command;
    } else {
      EXPECT_THAT(result.out, HasSubstr(printed->text)) << command << "\n" << result.err;
    }
  }
  for (const Printed* printed : unused) ADD_FAILURE() << "no command has " << printed->words;
}

// scripts/run.sh calls it every time.
TEST(SetupTest, SaysNothingWhereAllIsBuilt) {
  const std::vector<std::string> setup{DS_SOURCE_DIR "/scripts/setup.sh", "--programs"};
  const ProgramOptions options{.environment = {"PIP_NO_INDEX=1", "BUILD_DIR=" DS_BUILD_DIR}};
  const auto first = RunProgram(setup, options);  // builds what somebody has just edited
  ASSERT_EQ(first.status, 0) << first.err;
  const auto again = RunProgram(setup, options);
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(again.out + again.err, IsEmpty());
}

}  // namespace
}  // namespace ds::testing
