// dsrun tokenize as a program: what it writes, what it refuses, and that nothing half-made is left.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/tokenizer/file/read_tokenizer.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

const fs::path kTokenizerGoldens = fs::path(DS_SOURCE_DIR) / "tests/unit/tokenizer/goldens";
const std::string kTokenizer = (kTokenizerGoldens / "llama3.tokenizer.json").string();

class TokenizeCommandTest : public ::testing::Test {
 protected:
  ProgramResult Tokenize(std::vector<std::string> arguments) {
    std::vector<std::string> words = {DS_BIN_DIR "/dsrun", "tokenize"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return RunProgram(words, {.working_directory = folder_.path()});
  }
  void Write(const std::string& name, const std::string& content) {
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, content).ok());
  }
  std::string Read(const std::string& name) { return *ReadFile(folder_.path() / name); }

  template <typename Id>
  std::vector<std::uint32_t> ReadIds(const std::string& name) {
    const std::string bytes = Read(name);
    std::vector<std::uint32_t> ids(bytes.size() / sizeof(Id));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Id id = 0;
      std::memcpy(&id, bytes.data() + i * sizeof(Id), sizeof(Id));
      ids[i] = id;
    }
    return ids;
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const TemporaryFolder folder_;
};

std::vector<std::uint32_t> IdsOf(const std::vector<std::string>& texts, bool special) {
  const auto tokenizer = tokenizer::ReadTokenizer(kTokenizer);
  tokenizer::Encoder encoder(*tokenizer);
  std::vector<std::uint32_t> all;
  for (const std::string& text : texts) {
    const auto encoding = encoder.Encode(text, {.special_tokens = special});
    all.insert(all.end(), encoding->ids.begin(), encoding->ids.end());
  }
  return all;
}

TEST_F(TokenizeCommandTest, WritesFilesInTheirOrder) {
  Write("a.txt", "Hello\nworld, 12345\n");
  Write("b.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"tw\\u00f6 \\ud83d\\ude00\", \"id\": 3}");
  const ProgramResult result =
      Tokenize({"b.jsonl", "a.txt", "--tokenizer", kTokenizer, "--out", "x.bin", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  const std::vector<std::string> texts = {"one", "tw\xC3\xB6 \xF0\x9F\x98\x80",
                                          "Hello\nworld, 12345\n"};
  EXPECT_EQ(ReadIds<std::uint16_t>("x.bin"), IdsOf(texts, true));
  EXPECT_EQ(Json::parse(result.out),
            Json({{"texts", 3}, {"tokens", IdsOf(texts, true).size()}, {"token_dtype", "uint16"}}));
  EXPECT_THAT(Files(), ElementsAre("a.txt", "b.jsonl", "x.bin"));

  const ProgramResult plain = Tokenize({"a.txt", "--tokenizer", kTokenizer, "--out", "x.bin",
                                        "--no_special_tokens", "--token_dtype", "uint32"});
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(ReadIds<std::uint32_t>("x.bin"), IdsOf({texts[2]}, false));
  EXPECT_THAT(plain.out, HasSubstr("train with: --data x.bin --token_dtype uint32\n"));
}

// The tokens are those that training makes of the same rows (unit/tokenizer/row_goldens).
TEST_F(TokenizeCommandTest, RowsAreWrittenAsTrainingReadsThem) {
  const fs::path folder = fs::path(DS_SOURCE_DIR) / "tests/unit/tokenizer/row_goldens";
  std::vector<std::uint32_t> expected;
  for (const Json& each : Json::parse(*ReadFile(folder / "cases.json"))) {
    if (each["name"] != "tools as a text" && each["name"] != "conversational completion") continue;
    Write("rows.jsonl", (expected.empty() ? "" : Read("rows.jsonl")) + each["row"].dump() + "\n");
    const auto ids = each["ids"].get<std::vector<std::uint32_t>>();
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  Write("rows.jsonl",
        Read("rows.jsonl") + R"({"prompt": "a", "completion": "b", "label": false})" + "\n");
  const ProgramResult result =
      Tokenize({"rows.jsonl", "--tokenizer", folder.string(), "--out", "x.bin"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(ReadIds<std::uint16_t>("x.bin"), expected);
  EXPECT_THAT(result.err, HasSubstr("2 texts have prompts or messages that do not contribute"));
  EXPECT_THAT(result.err, HasSubstr("left out 1 rows with a \"label\" of false"));
}

// Several batches of lines, cut by several threads, come out in their order.
TEST_F(TokenizeCommandTest, ThreadsChangeNothing) {
  std::string lines;
  std::uint64_t count = 0;
  for (; lines.size() < (std::size_t{10} << 20); ++count) {
    lines += Json({{"body", "line " + std::to_string(count) + " \xE4\xBD\xA0 of the text, it's"}})
                 .dump() +
             "\n";
  }
  Write("lines.jsonl", lines);
  for (const char* threads : {"1", "3"}) {
    const ProgramResult result =
        Tokenize({"lines.jsonl", "--tokenizer", kTokenizer, "--out", threads, "--threads", threads,
                  "--field", "body", "--separator", "<|end_of_text|>"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("of " + std::to_string(count) + " texts, uint16"));
  }
  EXPECT_TRUE(Read("1") == Read("3"));
  const auto tokenizer = tokenizer::ReadTokenizer(kTokenizer);
  EXPECT_EQ(ReadIds<std::uint16_t>("1").back(), *tokenizer->IdOf("<|end_of_text|>"));
}

TEST_F(TokenizeCommandTest, ExplainsHowToFetchANameOfTheHub) {
  const ProgramResult result = Tokenize({"a.txt", "--tokenizer", "owner/name", "--out", "x.bin"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--tokenizer owner/name: no such folder or file; dsrun "
                                    "downloads nothing: if it is a name of the Hugging Face Hub"));
}

TEST_F(TokenizeCommandTest, ATokenizerThatCannotBeLookedAtIsNamedWithTheReason) {
  fs::create_symlink("loop", folder_.path() / "loop");
  const ProgramResult result = Tokenize({"a.txt", "--tokenizer", "loop", "--out", "x.bin"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--tokenizer loop: Too many levels of symbolic links"));
}

// The most that a child of this process has held so far.
std::int64_t PeakOfChildren() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

// Lines of about 4 MiB, a long one now and then.
std::string ManyLines() {
  std::string lines;
  for (int i = 0; lines.size() < 4 * kMebibyte; ++i) {
    const std::size_t words = i % 500 == 0 ? 6'000 : 6;
    std::string text;
    for (std::size_t word = 0; word < words; ++word)
      text += "interoperability characterization of ";
    lines += Json({{"text", text + std::to_string(i)}}).dump() + "\n";
  }
  return lines;
}

// Files of 64 MiB: one, or as many as make DSRUN_TEST_CORPUS_GIB.
int CountLargeFiles() {
  const char* const wanted = std::getenv("DSRUN_TEST_CORPUS_GIB");
  return wanted == nullptr ? 1 : 16 * std::stoi(wanted);
}

// Sixteen times the file or more, and the same memory: what is too large for a machine's is read as
// well. The words have an id each, so that of 20 GiB not as much is written.
TEST_F(TokenizeCommandTest, AFileOfAnySizeIsCutInTheSameMemory) {
  Write("tokenizer.json", R"({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {
      "type": "WordLevel", "unk_token": "?",
      "vocab": {"?": 0, "interoperability": 1, "characterization": 2, "of": 3}}})");
  const std::string lines = ManyLines();
  Write("small.jsonl", lines);
  std::string large;
  for (int i = 0; i < 16; ++i) large += lines;
  Write("large.jsonl", large);
  std::vector<std::string> links;
  for (int i = 0; i < CountLargeFiles(); ++i) {
    links.push_back("link" + std::to_string(i) + ".jsonl");
    fs::create_hard_link(folder_.path() / "large.jsonl", folder_.path() / links.back());
  }
  const auto peak_of = [&](std::vector<std::string> words) {
    words.insert(words.end(),
                 {"--tokenizer", "tokenizer.json", "--out", "x.bin", "--threads", "1"});
    const ProgramResult result = Tokenize(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return PeakOfChildren();
  };
  const std::int64_t small = peak_of({"small.jsonl"});
  const std::int64_t peak = peak_of(links);
  EXPECT_LT(peak - small, static_cast<std::int64_t>(16 * kMebibyte)) << "60 MiB of lines more";
  RecordProperty("peak_bytes", std::to_string(peak));
}

TEST_F(TokenizeCommandTest, NamesTheLineThatIsWrongAndLeavesNothing) {
  Write("x.bin", "what was there");
  Write("broken.jsonl", "{\"text\": \"a\"}\n{\"text\": \n");
  Write("other.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n");
  Write("bytes.txt", "abc\xFF");
  Write("empty.txt", "");
  for (const auto& [file, error] : std::vector<std::pair<std::string, std::string>>{
           {"broken.jsonl", "tokenize: broken.jsonl:2: the row is no JSON: column "},
           {"other.jsonl", "other.jsonl:2: the row has \"body\", and rows are read that have"},
           {"bytes.txt", "tokenize: bytes.txt: byte 3 of the text is not UTF-8"},
           {"empty.txt", "tokenize: empty.txt: the file is empty"},
           {"none.txt", "tokenize: none.txt: no such data file or folder"},
           {".", "tokenize: .: the folder has files of several formats"}}) {
    const ProgramResult result = Tokenize({file, "--tokenizer", kTokenizer, "--out", "x.bin"});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(error));
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_EQ(Read("x.bin"), "what was there");
  }
  EXPECT_THAT(Files(),
              ElementsAre("broken.jsonl", "bytes.txt", "empty.txt", "other.jsonl", "x.bin"));
}

TEST_F(TokenizeCommandTest, RefusesUnsupportedInput) {
  Write("a.txt", "a");
  Write("tokenizer.json", "{\"model\": {\"type\": \"Neural\"}}");
  Write("big.json", R"({"model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 70000}}})");
  const auto refuses = [&](std::vector<std::string> arguments, const std::string& error) {
    const ProgramResult result = Tokenize(std::move(arguments));
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(error));
  };
  refuses({}, "tokenize: no FILES given");
  refuses({"a.txt", "--out", "x.bin"}, "tokenize: no --tokenizer given");
  refuses({"a.txt", "--tokenizer", kTokenizer}, "tokenize: no --out given");
  refuses({"a.txt", "--tokenizer", ".", "--out", "x.bin"},
          "tokenizer.json: model.type: 'Neural' is not a supported model");
  refuses({"a.txt", "--tokenizer", kTokenizer, "--out", "x.bin", "--separator", "</x>"},
          "--separator '</x>' is not a token of this tokenizer");
  refuses({"a.txt", "--tokenizer", "big.json", "--out", "x.bin", "--token_dtype", "uint16"},
          "--token_dtype uint16 cannot hold the ids of this tokenizer, which go to 70000");
  refuses({"a.txt", "--tokenizer", kTokenizer, "--out", "none/x.bin"}, "none/x.bin: No such file");
  refuses({"a.txt", "--tokenizer", kTokenizer, "--out", "x.bin", "--token_dtype", "int8"}, "int8");
}

}  // namespace
}  // namespace ds::testing
