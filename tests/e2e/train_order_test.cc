// Which samples each step of a job has, as its ranks tell it (DSRUN_SAMPLE_LOG): whatever is killed
// and whatever number of ranks goes on, one behind the other they are the uninterrupted job's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/e2e/train_fixture.h"
#include "tests/places.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Words = std::vector<std::string>;
using Samples = std::vector<std::int64_t>;

// The samples of each step of some, by their places in the training stream.
using Steps = std::map<std::int64_t, std::map<std::int64_t, Samples>>;

// What the ranks have logged in a folder, which are so many.
Steps ReadLog(const fs::path& folder, int ranks) {
  Steps steps;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& line : ReadJsonLines(folder / ("rank-" + std::to_string(rank) + ".jsonl"))) {
      const bool is_new = steps[line["step"]].emplace(line["place"], line["samples"]).second;
      EXPECT_TRUE(is_new) << line << " is another rank's as well";
    }
  }
  EXPECT_FALSE(fs::exists(folder / ("rank-" + std::to_string(ranks) + ".jsonl")));
  return steps;
}

// Steps that a later attempt has done again count as that one did them.
void Continue(const Steps& attempt, Steps* steps) {
  if (attempt.empty()) return;
  steps->erase(steps->lower_bound(attempt.begin()->first), steps->end());
  steps->insert(attempt.begin(), attempt.end());
}

Samples Flatten(const Steps& steps) {
  Samples all;
  for (const auto& [step, places] : steps) {
    for (const auto& [place, samples] : places) {
      all.insert(all.end(), samples.begin(), samples.end());
    }
  }
  return all;
}

class TrainOrderTest : public TrainTest {
 protected:
  // Runs with the log of an attempt in a folder of its own.
  ProgramOptions Logged(const std::string& attempt) const {
    fs::create_directories(LogOf(attempt));
    return {.environment = {"DSRUN_SAMPLE_LOG=" + LogOf(attempt).string()}};
  }
  fs::path LogOf(const std::string& attempt) const { return folder_.path() / ("log-" + attempt); }
  Words Resume(const std::string& run, int ranks, const Words& more = {}) const {
    Words words = {
        DS_BIN_DIR "/dsrun", "--device", "cpu", "--num_gpus", std::to_string(ranks), "resume",
        RunDir(run).string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

// The newest step that is saved.
int FindSaved(const fs::path& run_dir) {
  int newest = 0;
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints")) {
    int step = 0;
    const std::string name = entry.path().filename();
    const bool is_step = std::sscanf(name.c_str(), "step-%d", &step) == 1;
    if (is_step && name == "step-" + std::to_string(step)) newest = std::max(newest, step);
  }
  return newest;
}

TEST_F(TrainOrderTest, KilledAtRandomInstantsAndResumedByOtherNumbersOfRanksItIsTheSame) {
  constexpr int kEvery = 2;
  Words arguments = Train(2, 2);
  for (std::string& word : arguments) {
    if (word.ends_with(".json")) word = WriteConfig(2, /*global_batch=*/6).string();
  }
  std::mt19937 random(20);
  Steps found;
  int ranks = 2, saved = 0;
  Words command = DsrunCommand(RunDir("killed"), arguments);
  // Kills end it.
  command.insert(command.end(), {"--steps", "1000000", "--save_every", std::to_string(kEvery)});
  const int kills = CountKills(/*usual=*/4);
  for (int kill = 0; kill < kills; ++kill) {
    const std::string name = std::to_string(kill);
    Program program(command, Logged(name));
    const std::string next = "step-" + std::to_string(saved + kEvery);
    ASSERT_TRUE(program.WaitForOutput(next)) << program.out() << program.err();
    // The instant is what is tried, not an order: any is right.
    ::usleep(std::uniform_int_distribution<useconds_t>(0, 400'000)(random));
    const int lost = static_cast<int>(random() % static_cast<unsigned>(ranks));
    ASSERT_EQ(::kill(RankPid("killed", lost), SIGKILL), 0);
    const ProgramResult result = program.Wait();
    ASSERT_EQ(result.status, 137) << result.out << result.err;
    Continue(ReadLog(LogOf(name), ranks), &found);
    ranks = 1 + (ranks + static_cast<int>(random() % 2)) % 3;  // another number, of 1 to 3
    saved = FindSaved(RunDir("killed"));
    command = Resume("killed", ranks);
  }
  const std::string steps = std::to_string(saved + kEvery);
  const auto rest = RunProgram(Resume("killed", ranks, {"--steps", steps}), Logged("rest"));
  ASSERT_EQ(rest.status, 0) << rest.out << rest.err;
  Continue(ReadLog(LogOf("rest"), ranks), &found);
  arguments.insert(arguments.end(), {"--steps", steps});
  const auto whole = RunProgram(DsrunCommand(RunDir("whole"), arguments), Logged("whole"));
  ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
  const Steps expected = ReadLog(LogOf("whole"), 2);
  EXPECT_EQ(std::to_string(expected.size()), steps);
  EXPECT_EQ(found.size(), expected.size());
  EXPECT_EQ(Flatten(found), Flatten(expected));
}

class TokenBatchTest : public TrainOrderTest {
 protected:
  // Chats of many lengths, and a model whose tokenizer cuts them.
  TokenBatchTest() {
    fs::create_directories(folder_.path() / "model");
    Write("model/config.json",
          R"({"model_type": "gpt2", "vocab_size": 512, "n_positions": 64, "n_embd": 32,
              "n_layer": 2, "n_head": 2, "resid_pdrop": 0.1, "embd_pdrop": 0.1,
              "attn_pdrop": 0.1})");
    Write("model/tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
    fs::copy_file(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/gpt2.tokenizer.json",
                  folder_.path() / "model/tokenizer.json");
    std::string lines;
    for (int i = 0; i < 90; ++i) {
      lines += R"({"text": ")" + std::string(static_cast<std::size_t>(1 + i * 7 % 20), 'x') +
               std::to_string(i) + "\"}\n";
    }
    Write("texts.jsonl", lines);
    const nlohmann::json batching = {{"enabled", true}, {"max_tokens", 48}, {"verbose", true}};
    const nlohmann::json config = {
        {"train_batch_size", 6},
        {"train_micro_batch_size_per_gpu", 1},
        {"zero_optimization", {{"stage", 2}}},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.006}}}}},
        {"data_efficiency",
         {{"enabled", true},
          {"data_sampling", {{"enabled", true}, {"dynamic_batching", batching}}}}}};
    Write("ds.json", config.dump());
  }
  void Write(const std::string& name, const std::string& content) const {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, content).ok());
  }
  std::string At(const std::string& name) const { return (folder_.path() / name).string(); }

  ProgramResult Run(const std::string& run, int ranks, const Words& more) const {
    Words words = {
        "--num_gpus",  std::to_string(ranks), "train",     "--model",      At("model"),
        "--data",      At("texts.jsonl"),     "--packing", "none",         "--deepspeed_config",
        At("ds.json"), "--seq_len",           "64",        "--data_cache", At("cache")};
    words.insert(words.end(), more.begin(), more.end());
    return RunProgram(DsrunCommand(RunDir(run), words), Logged(run));
  }
  std::vector<nlohmann::json> Lines(const std::string& run) const {
    return ReadJsonLines(RunDir(run) / "metrics.jsonl");
  }
};

TEST_F(TokenBatchTest, RatesFollowTheSamplesAndResumeWithOtherRanks) {
  const auto whole = Run("whole", 2, {"--steps", "8"});
  ASSERT_EQ(whole.status, 0) << whole.out << whole.err;
  EXPECT_THAT(whole.out + whole.err, HasSubstr("micro-batches of at most 48 tokens"));
  EXPECT_THAT(whole.out + whole.err, HasSubstr("samples, the learning rate 0.0"));
  const Steps log = ReadLog(LogOf("whole"), 2);
  std::set<std::int64_t> counts;
  for (const auto& line : Lines("whole")) {
    const auto& places = log.at(line["step"]);
    EXPECT_EQ(places.size(), 6u) << "micro-batches of a step";
    const auto samples =
        static_cast<std::int64_t>(Flatten({{line["step"].get<std::int64_t>(), places}}).size());
    EXPECT_EQ(line["samples"], samples);
    EXPECT_DOUBLE_EQ(line["lr"].get<double>(), 0.006 * static_cast<double>(samples) / 6);
    counts.insert(samples);
  }
  EXPECT_GT(counts.size(), 1u) << "steps differ";
  ASSERT_EQ(Run("half", 3, {"--steps", "3", "--save_every", "3"}).status, 0);
  Steps split = ReadLog(LogOf("half"), 3);
  const auto resumed = RunProgram(Resume("half", 1, {"--steps", "8"}), Logged("rest"));
  ASSERT_EQ(resumed.status, 0) << resumed.out << resumed.err;
  Continue(ReadLog(LogOf("rest"), 1), &split);
  EXPECT_EQ(Flatten(split), Flatten(log));
  EXPECT_EQ(Column(Lines("half"), "lr"), Column(Lines("whole"), "lr"));
  EXPECT_THAT(Column(Lines("half"), "loss"),
              Pointwise(DoubleNear(2e-5), Column(Lines("whole"), "loss")))
      << "dropout, too, is the same at each sample";
}

TEST_F(TokenBatchTest, StagesOfAPipelineTakeThemAsOneRankDoes) {
  nlohmann::json config = ReadJson(At("ds.json"));
  config["zero_optimization"]["stage"] = 1;
  Write("ds.json", config.dump());
  ASSERT_EQ(Run("one", 1, {"--steps", "4"}).status, 0);
  const auto stages = Run("stages", 2, {"--steps", "4", "--pp", "2"});
  ASSERT_EQ(stages.status, 0) << stages.out << stages.err;
  EXPECT_THAT(Column(Lines("stages"), "loss"),
              Pointwise(DoubleNear(2e-5), Column(Lines("one"), "loss")));
}

}  // namespace
}  // namespace ds::testing
