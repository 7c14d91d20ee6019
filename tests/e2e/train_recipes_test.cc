// Each recipe as its page says it: the command is run as it is written there, with a few short
// steps of a tiny model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <sstream>

#include "runtime/base/files.h"
#include "runtime/base/positioned_json.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kRecipeProgram[] = "    build/bin/dsrun ";
constexpr char kRecipeConfig[] =
    R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0})";
constexpr char kTokenizerConfig[] =
    R"({"eos_token": "<|endoftext|>", "chat_template":
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"})";

fs::path Recipes() { return fs::path(DS_SOURCE_DIR) / "configs/recipes"; }

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Recipes())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  return names;
}

std::string ReadRecipeFile(const std::string& name) {
  const auto text = ReadFile(Recipes() / name);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

// The words behind the program of the command on a recipe's page.
std::vector<std::string> CommandOnPage(const std::string& recipe) {
  const std::string page = ReadRecipeFile(recipe + ".md");
  const std::size_t start = page.find(kRecipeProgram);
  if (start == std::string::npos) return {};
  const std::size_t end = page.find('\n', start);
  std::istringstream words(page.substr(start, end - start).substr(sizeof(kRecipeProgram) - 1));
  return {std::istream_iterator<std::string>(words), {}};
}

// Every value of `wanted`, but for "auto", is in `config`, at the same place.
void ExpectHolds(const Json& config, const Json& wanted, const std::string& where) {
  for (const auto& [name, value] : wanted.items()) {
    if (value == "auto") continue;
    const std::string place = where + "." + name;
    ASSERT_TRUE(config.contains(name)) << place;
    if (value.is_object()) {
      ExpectHolds(config[name], value, place);
    } else {
      EXPECT_EQ(config[name], value) << place;
    }
  }
}

class TrainRecipesTest : public ::testing::TestWithParam<std::string> {
 protected:
  TrainRecipesTest() {
    fs::create_directories(folder_.path() / "untrained");
    Write("untrained/config.json", kRecipeConfig);
    Write("untrained/tokenizer_config.json", kTokenizerConfig);
    fs::copy_file(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/gpt2.tokenizer.json",
                  folder_.path() / "untrained/tokenizer.json");
    fs::copy_file(DS_SOURCE_DIR "/README.md", folder_.path() / "corpus.txt");
    std::string chats;
    for (int i = 0; i < 64; ++i) {
      chats += R"({"messages": [{"role": "user", "content": "What comes behind )" +
               std::to_string(i) + R"(?"}, {"role": "assistant", "content": "It is )" +
               std::to_string(i + 1) + "\"}]}\n";
    }
    Write("chats.jsonl", chats);
  }
  void Write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
  }
  ProgramResult Run(const std::string& run, std::vector<std::string> words) const {
    words.insert(words.end(), {"--seq_len", "64", "--steps", "2", "--data_cache", "cache"});
    return RunProgram(DsrunCommand(folder_.path() / run, words),
                      {.working_directory = folder_.path()});
  }
  // Makes my_model, a folder with weights.
  void MakeModel() const {
    const auto made = Run("made", {"--num_gpus", "1", "train", "--model", "untrained", "--data",
                                   "corpus.txt", "--save_hf", "my_model"});
    ASSERT_EQ(made.status, 0) << made.out << made.err;
  }

  TemporaryFolder folder_;
};

TEST_P(TrainRecipesTest, ItsPagesCommandTrains) {
  const std::string name = GetParam();
  const std::vector<std::string> words = CommandOnPage(name);
  ASSERT_GT(words.size(), 2u) << "configs/recipes/" << name << ".md has no command";
  MakeModel();
  const auto run = Run("run", words);
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("\nstep 2/2  loss "));
  EXPECT_THAT(run.err, HasSubstr("dsrun: recipe " + name + ":"));
  const Json recipe = FullValue(ReadPositionedJson(ReadRecipeFile(name + ".json")).root);
  const auto resolved = ReadFile(folder_.path() / "run/config.resolved.json");
  ASSERT_TRUE(resolved.ok());
  ExpectHolds(Json::parse(*resolved), recipe["ds_config"], name);
  // What its flags say is in the job, but for what Run says otherwise.
  const Json job = Json(ReadJson(folder_.path() / "run/job.json")).at("train");
  for (const auto& [flag, value] : recipe["train"].items()) {
    const bool is_changed = flag == "seq_len" || flag == "steps" || flag == "epochs";
    if (job.contains(flag) && !is_changed) {
      EXPECT_EQ(job[flag], value) << flag;
    }
  }
}

class ExpertsRecipeTest : public TrainRecipesTest {};

// In a step every token has two routes in each of the four layers.
TEST_F(ExpertsRecipeTest, ReportsTheirLoadInEveryStep) {
  const auto run = Run("run", CommandOnPage("experts"));
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  std::istringstream lines(ReadFile(folder_.path() / "run/metrics.jsonl").value());
  int steps = 0;
  for (std::string line; std::getline(lines, line); ++steps) {
    const Json step = Json::parse(line);
    ASSERT_EQ(step["expert_routes"].size(), 4U);
    for (const Json& layer : step["expert_routes"]) {
      const auto routes = layer.get<std::vector<std::int64_t>>();
      EXPECT_EQ(routes.size(), 8U);
      EXPECT_EQ(std::accumulate(routes.begin(), routes.end(), std::int64_t{0}),
                2 * step["tokens"].get<std::int64_t>());
    }
    EXPECT_EQ(step["expert_imbalance"].size(), 4U);
  }
  EXPECT_EQ(steps, 2);
}

INSTANTIATE_TEST_SUITE_P(Shipped, TrainRecipesTest, ::testing::ValuesIn(RecipeNames()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class OwnWordsTest : public TrainRecipesTest {};

TEST_F(OwnWordsTest, GoBeforeTheRecipe) {
  Write("ds.json", R"({"zero_optimization": {"stage": 2}, "train_batch_size": 4})");
  const auto run = Run(
      "run", {"--num_gpus", "2", "train", "--recipe", "gpt2-from-scratch", "--model", "untrained",
              "--data", "corpus.txt", "--deepspeed_config", "ds.json", "--learning_rate", "0.5"});
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  const auto config = ReadJson(folder_.path() / "run/config.resolved.json");
  EXPECT_EQ(config["zero_optimization"]["stage"], 2);
  EXPECT_EQ(config["train_micro_batch_size_per_gpu"], 2) << "4 over 2 ranks";
  EXPECT_EQ(config["optimizer"]["params"]["lr"], 0.5);
  EXPECT_EQ(config["optimizer"]["params"]["weight_decay"], 0.1);
  EXPECT_EQ(config["origins"]["optimizer.params.lr"], "--learning_rate");
  EXPECT_EQ(config["origins"]["optimizer.params.weight_decay"], "recipe gpt2-from-scratch");
  EXPECT_EQ(config["scheduler"]["params"]["total_num_steps"], 2);
}

TEST_F(OwnWordsTest, GoBeforeArgumentsOfTrainer) {
  const auto golden = ReadJson(DS_SOURCE_DIR "/tests/unit/cli/goldens/translate.json");
  nlohmann::json arguments = golden["saved"];
  arguments["learning_rate"] = 0.5;
  arguments["per_device_train_batch_size"] = 2;
  Write("args.json", arguments.dump());
  const auto run = RunProgram(
      DsrunCommand(folder_.path() / "run",
                   {"--num_gpus", "1", "train", "--from_hf_trainer", "args.json", "--model",
                    "untrained", "--data", "corpus.txt", "--seq_len", "32", "--seed", "7"}),
      {.working_directory = folder_.path()});
  ASSERT_EQ(run.status, 0) << run.out << run.err;
  const auto rates = Column(ReadJsonLines(folder_.path() / "run/metrics.jsonl"), "lr");
  EXPECT_THAT(rates, ::testing::Pointwise(::testing::DoubleNear(1e-12),
                                          golden["rates"]["linear"].get<std::vector<double>>()))
      << "transformers' own rates";
  EXPECT_EQ(ReadJson(folder_.path() / "run/job.json").at("train").at("seed"), 7);
  EXPECT_TRUE(fs::exists(folder_.path() / "out/model.safetensors"));
}

// The rates of the runs themselves, by Trainer's own schedules and by DeepSpeed's.
TEST_F(OwnWordsTest, RatesOfTrainersArgumentsAreTrainers) {
  const auto goldens = ReadJson(DS_SOURCE_DIR "/tests/unit/cli/goldens/trainer_rates.json");
  for (const std::size_t chosen : {1, 7, 12}) {  // linear and polynomial, WarmupDecayLR of "auto"
    const nlohmann::json& golden = goldens[chosen];
    nlohmann::json arguments = golden["arguments"];
    if (!golden["deepspeed"].is_null()) arguments["deepspeed"] = golden["deepspeed"];
    arguments["per_device_train_batch_size"] = 2;
    Write("args.json", arguments.dump());
    const std::string run_directory = "run" + std::to_string(chosen);
    const auto run = RunProgram(  // as long as the arguments say
        DsrunCommand(folder_.path() / run_directory,
                     {"--num_gpus", "1", "train", "--from_hf_trainer", "args.json", "--model",
                      "untrained", "--data", "corpus.txt", "--seq_len", "32"}),
        {.working_directory = folder_.path()});
    ASSERT_EQ(run.status, 0) << run.out << run.err;
    const auto rates =
        Column(ReadJsonLines(folder_.path() / run_directory / "metrics.jsonl"), "lr");
    EXPECT_THAT(rates, ::testing::Pointwise(::testing::DoubleNear(1e-15),
                                            golden["rates"].get<std::vector<double>>()));
  }
}

TEST_F(OwnWordsTest, CannotChangeARecipeIntoAnother) {
  MakeModel();
  Write("ds.json", R"({"zero_optimization": {"stage": 1}})");
  const auto refused = Run("run", {"train", "--recipe", "zero3-offload", "--model", "my_model",
                                   "--data", "corpus.txt", "--deepspeed_config", "ds.json"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("recipe zero3-offload shards the weights, but zero_optimization.stage is "
                        "1; change that, or train without --recipe"));
  const auto trained = Run("run", {"train", "--recipe", "gpt2-from-scratch", "--model", "my_model",
                                   "--data", "corpus.txt"});
  EXPECT_EQ(trained.status, 2);
  EXPECT_THAT(trained.err, HasSubstr("my_model has trained ones (give its config.json alone)"));
}

}  // namespace
}  // namespace ds::testing
