// Texts with the real programs: those of the goldens, streamed, as JSON, drawn, of conversations;
// what dsrank refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kVocabulary = 320;  // of the goldens' models
constexpr char kGoldens[] = DS_SOURCE_DIR "/tests/numerics/goldens/";

// Token i is the word "ti".
std::string TextOf(const std::vector<std::int64_t>& tokens) {
  std::string text;
  for (const std::int64_t token : tokens) {
    text += (text.empty() ? "t" : " t") + std::to_string(token);
  }
  return text;
}

nlohmann::json WordTokenizer() {
  nlohmann::json vocabulary;
  for (int i = 0; i < kVocabulary; ++i) vocabulary["t" + std::to_string(i)] = i;
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Whitespace"}}},
          {"post_processor", nullptr},
          {"decoder", nullptr},
          {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "t1"}}}};
}

class GenerateTest : public ::testing::Test {
 protected:
  // A golden's model with a tokenizer.
  std::string MakeModel(const std::string& golden) {
    const fs::path folder = folder_.path() / "model";
    fs::copy(kGoldens + golden, folder, fs::copy_options::recursive);
    Write("model/tokenizer.json", WordTokenizer().dump());
    return folder.string();
  }
  void Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
  }
  ProgramResult Generate(const std::string& model, std::vector<std::string> more) const {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "generate", "--model", model};
    command.insert(command.end(), more.begin(), more.end());
    return RunProgram(command, {.working_directory = folder_.path()});
  }
  // The lines of --json.
  std::vector<nlohmann::json> GenerateJson(const std::string& model,
                                           std::vector<std::string> more) const {
    more.push_back("--json");
    const ProgramResult result = Generate(model, more);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<nlohmann::json> lines;
    std::istringstream stream(result.out);
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
  void ExpectRefused(const ProgramResult& result, const std::string& words) const {
    EXPECT_EQ(result.status, 2) << words;
    EXPECT_THAT(result.err, StartsWith("dsrun: "));
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(result.out, "");
  }

  TemporaryFolder folder_;
};

TEST_F(GenerateTest, TheTextIsThatOfTransformers) {
  const nlohmann::json goldens = ReadJson(DS_SOURCE_DIR "/tests/unit/inference/goldens/texts.json");
  const std::string model = MakeModel("families/qwen3");
  std::string prompts;
  for (const nlohmann::json& text : goldens["texts"]["qwen3"]) {
    const std::vector<std::int64_t> expected = text["penalised"];
    const ProgramResult result = Generate(
        model, {"--max_new_tokens", "24", "--repetition_penalty", "1.3", TextOf(text["prompt"])});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.err, "");
    const bool ends = expected.back() == 0;  // its end token, which is not shown
    EXPECT_EQ(result.out, TextOf({expected.begin(), expected.end() - (ends ? 1 : 0)}) + "\n");
    prompts += nlohmann::json{{"prompt", TextOf(text["prompt"])}}.dump() + "\n";
  }
  Write("prompts.jsonl", prompts);
  const auto lines =
      GenerateJson(model, {"--max_new_tokens", "24", "--prompt_file", "prompts.jsonl"});
  ASSERT_EQ(lines.size(), 3u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const nlohmann::json& golden = goldens["texts"]["qwen3"][i];
    std::vector<std::int64_t> expected = golden["greedy"];
    const bool ends = expected.back() == 0;
    if (ends) expected.pop_back();
    EXPECT_EQ(lines[i]["index"], i);
    EXPECT_EQ(lines[i]["prompt"], TextOf(golden["prompt"]));
    EXPECT_EQ(lines[i]["prompt_tokens"], golden["prompt"].size());
    EXPECT_EQ(lines[i]["tokens"], expected);
    EXPECT_EQ(lines[i]["text"], TextOf(expected));
    EXPECT_EQ(lines[i]["finish_reason"], ends ? "stop" : "length");
  }
}

TEST_F(GenerateTest, DrawsDependOnTheSeedAndNotOnTheBatch) {
  const std::string model = MakeModel("llama");
  Write("prompts.txt", "t5 t6\nt7\nt5 t6\n");
  const std::vector<std::string> draw = {"--sample", "--max_new_tokens", "12", "--prompt_file",
                                         "prompts.txt"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), draw.begin(), draw.end());
    return GenerateJson(model, more);
  };
  const auto together = with({});
  ASSERT_EQ(together.size(), 3u);
  EXPECT_NE(together[0]["tokens"], together[2]["tokens"]);
  EXPECT_EQ(with({"--batch_size", "1"}), together);
  EXPECT_EQ(with({"--batch_size", "2"}), together);
  EXPECT_NE(with({"--seed", "7"}), together);
  const ProgramResult shown = Generate(model, draw);
  EXPECT_EQ(shown.out, "> t5 t6\n" + together[0]["text"].get<std::string>() + "\n\n> t7\n" +
                           together[1]["text"].get<std::string>() + "\n\n> t5 t6\n" +
                           together[2]["text"].get<std::string>() + "\n");
}

TEST_F(GenerateTest, ConversationsGoThroughTheChatTemplate) {
  const std::string model = MakeModel("llama");
  ExpectRefused(Generate(model, {"--chat", "t5"}),
                "the prompt: a conversation needs a chat template");
  Write("model/chat_template.jinja",
        "{% for m in messages %}{{ 't9' if m.role == 'user' else 't8' }} {{ m.content }} "
        "{% endfor %}{% if add_generation_prompt %}t7{% endif %}");
  const auto asked = GenerateJson(model, {"--chat", "--system", "t2", "t5 t6"});
  const auto written = GenerateJson(model, {"t8 t2 t9 t5 t6 t7"});
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0]["tokens"], written.at(0)["tokens"]);
  EXPECT_EQ(asked[0]["prompt"][1]["content"], "t5 t6");
}

TEST_F(GenerateTest, TheFoldersGenerationConfigIsHonoured) {
  const std::string model = MakeModel("llama");
  const auto whole = GenerateJson(model, {"--max_new_tokens", "12", "t5"});
  ASSERT_EQ(whole.at(0)["tokens"].size(), 12u);
  const std::int64_t end = whole[0]["tokens"][4];
  const nlohmann::json config = {{"max_new_tokens", 9}, {"eos_token_id", {1, end}}};
  Write("model/generation_config.json", config.dump());
  const auto split = GenerateJson(model, {"t5"});
  EXPECT_EQ(split.at(0)["finish_reason"], "stop");
  EXPECT_LE(split[0]["tokens"].size(), 4u);
  Write("model/generation_config.json", R"({"num_beams": 3})");
  ExpectRefused(Generate(model, {"t5"}), "num_beams = 3: this is not built");
  EXPECT_EQ(GenerateJson(model, {"--ignore_generation_config", "--max_new_tokens", "12", "t5"}),
            whole);
}

TEST_F(GenerateTest, AMaxLengthCountsThePrompt) {
  const std::string model = MakeModel("llama");
  Write("model/generation_config.json", R"({"max_length": 10})");
  EXPECT_EQ(GenerateJson(model, {"t5 t6 t7"}).at(0)["tokens"].size(), 7u);
  EXPECT_EQ(GenerateJson(model, {"--max_new_tokens", "9", "t5 t6"}).at(0)["tokens"].size(), 9u);
  const std::vector<std::int64_t> tokens(10, 5);
  ExpectRefused(Generate(model, {TextOf(tokens)}),
                "its 10 tokens leave no space for new ones: generation_config.json has max_length "
                "10; --max_new_tokens N overrides it");
}

TEST_F(GenerateTest, ATemperatureOf0IsOfNoMatterWhereNothingIsDrawn) {
  const std::string model = MakeModel("llama");
  const auto plain = GenerateJson(model, {"t5"});
  Write("model/generation_config.json", R"({"do_sample": true, "temperature": 0.0})");
  EXPECT_EQ(GenerateJson(model, {"--greedy", "t5"}), plain);
  EXPECT_EQ(GenerateJson(model, {"--temperature", "0.5", "t5"}).size(), 1u);
  ExpectRefused(Generate(model, {"t5"}), "temperature is 0, with which nothing can be drawn");
}

TEST_F(GenerateTest, WritesBytesForAModelTrainedOnBytes) {
  const ProgramResult trained = RunProgram(
      DsrunCommand(folder_.path() / "run",
                   {"--num_gpus", "1", "train", "--model", std::string(kGoldens) + "llama",
                    "--data", DS_SOURCE_DIR "/README.md", "--seq_len", "32", "--steps", "3",
                    "--save_every", "3", "--save_hf", (folder_.path() / "trained").string()}));
  ASSERT_EQ(trained.status, 0) << trained.out << trained.err;
  const std::vector<std::string> more = {"--tokenizer", "bytes", "--max_new_tokens", "20", "The "};
  const auto text = GenerateJson("trained", more);
  ASSERT_EQ(text.size(), 1u);
  EXPECT_EQ(text[0]["prompt_tokens"], 4);
  EXPECT_EQ(Generate("trained", more).out, text[0]["text"].get<std::string>() + "\n");

  // A run becomes a folder as the refusal says.
  EXPECT_THAT(Generate("run", more).err, HasSubstr("dsrun resume run --save_hf DIR"));
  const ProgramResult exported = RunProgram({DS_BIN_DIR "/dsrun", "--device", "cpu", "resume",
                                             (folder_.path() / "run").string(), "--save_hf",
                                             (folder_.path() / "exported").string()});
  ASSERT_EQ(exported.status, 0) << exported.out << exported.err;
  EXPECT_EQ(GenerateJson("exported", more), text);
  EXPECT_THAT(Generate("run/checkpoints/step-3", more).err,
              HasSubstr("dsrun resume run --checkpoint step-3 --steps 3 --save_hf DIR"));
}

TEST_F(GenerateTest, RefusesPromptsThatDoNotFitTheModel) {
  const std::string model = MakeModel("llama");  // of 64 positions
  std::vector<std::int64_t> tokens(64, 5);
  ExpectRefused(Generate(model, {TextOf(tokens)}),
                "the prompt: its 64 tokens do not fit the model, which has 64 positions");
  tokens.resize(60);
  ExpectRefused(Generate(model, {"--max_new_tokens", "5", TextOf(tokens)}),
                "its 60 tokens and 5 new ones do not fit the model, which has 64 positions; "
                "--max_new_tokens 4 fits");
  EXPECT_LE(GenerateJson(model, {TextOf(tokens)}).at(0)["tokens"].size(), 4u);
  fs::remove(folder_.path() / "model/model.safetensors");
  const ProgramResult drawn = Generate(model, {"--max_new_tokens", "2", "t5"});
  EXPECT_EQ(drawn.status, 0);
  EXPECT_THAT(drawn.err, HasSubstr("has no weights: they are drawn by --seed"));
  Write("model/config.json", R"({"model_type": "nothing"})");
  ExpectRefused(Generate(model, {"t5"}), "nothing");
}

TEST_F(GenerateTest, ReportsDistinctStatuses) {
  const std::string model = MakeModel("llama");
  const ProgramResult refused = RunProgram({DS_BIN_DIR "/dsrun", "--exit_codes", "distinct",
                                            "generate", "--model", model, "--chat", "t5"});
  EXPECT_EQ(refused.status, 242) << refused.err;
}

}  // namespace
}  // namespace ds::testing
