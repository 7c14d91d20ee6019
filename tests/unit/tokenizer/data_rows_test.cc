// The rows of data files and the files of folders are those that `datasets` reads; the goldens are
// by scripts/goldens/make_data_goldens.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/tokenizer/corpus/card_configs.h"
#include "runtime/tokenizer/corpus/documents.h"
#include "runtime/tokenizer/corpus/split_names.h"
#include "runtime/tokenizer/corpus/table_rows.h"
#include "tests/places.h"
#include "tests/unit/tokenizer/data_folder.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const fs::path kDataGoldens = DS_SOURCE_DIR "/tests/unit/tokenizer/data_goldens";

bool ReadsArrow() { return fs::exists(DS_BIN_DIR "/libdsrun_arrow.so"); }

StatusOr<Json> ReadRows(const std::string& path, const std::string& field = "") {
  DS_ASSIGN_OR_RETURN(auto reader, DocumentReader::Open({path}, field));
  Json rows = Json::array();
  while (true) {
    DS_ASSIGN_OR_RETURN(const auto batch, reader.Next());
    if (!batch) return rows;
    EXPECT_TRUE(batch->lines) << path;
    DS_RETURN_IF_ERROR(ForEachDocument(*batch, [&](std::string_view row, const std::string&) {
      rows.push_back(Json::parse(row));
      return OkStatus();
    }));
  }
}

std::string ErrorOf(const std::string& path, const std::string& field = "") {
  const auto rows = ReadRows(path, field);
  return rows.ok() ? "read: " + rows->dump() : std::string(rows.status().message());
}

bool NeedsArrow(const std::string& name) {
  return name.starts_with("saved") || name.ends_with(".parquet");
}

TEST(DataRows, AreThoseOfDatasets) {
  const Json expected = Json::parse(ReadFile(kDataGoldens / "rows.json").value());
  ASSERT_GE(expected.size(), 25U);
  for (const auto& [name, rows] : expected.items()) {
    if (NeedsArrow(name) && !ReadsArrow()) continue;
    const auto read = ReadRows(kDataGoldens / name, name == "field.json" ? "rows" : "");
    ASSERT_TRUE(read.ok()) << name << ": " << read.status().message();
    EXPECT_EQ(*read, rows) << name;
  }
}

// The files of a folder, relative to it.
std::vector<std::string> TakenFiles(const DataFolder& folder, const DataFiles& data) {
  std::vector<std::string> names;
  for (const DataFile& file : data.files)
    names.push_back(file.path.lexically_relative(folder.path()));
  return names;
}

TEST(DataFolders, GiveTheFilesThatDatasetsTakes) {
  for (const Json& tree : Json::parse(ReadFile(kDataGoldens / "splits.json").value())) {
    const DataFolder folder;
    for (const Json& path : tree["paths"]) folder.Write(path.get<std::string>(), "{\"text\": 1}\n");
    if (tree.contains("card")) folder.Write("README.md", tree["card"].get<std::string>());
    const auto data = ListDataFiles({folder.path()});
    const Json& train = tree["train"];
    ASSERT_EQ(data.ok(), train.is_array()) << tree << (data.ok() ? "" : data.status().message());
    if (data.ok()) {
      EXPECT_EQ(TakenFiles(folder, *data), train.get<std::vector<std::string>>()) << tree;
      const std::size_t there = tree["paths"].size() + (tree.contains("card") ? 1 : 0);
      EXPECT_EQ(data->notices.empty(), data->files.size() == there) << tree;
      continue;
    }
    // Without the split "train", the others are named.
    for (const Json& split : train.is_object() ? train["splits"] : Json({"/README.md: "})) {
      EXPECT_THAT(data.status().message(), HasSubstr(split.get<std::string>())) << tree;
    }
  }
}

// datasets takes the last of two, and reads YAML in other forms; here the card is refused.
TEST(DataFolders, NameTheReasonToRefuseACard) {
  const DataFolder folder;
  folder.Write("a.jsonl", "{}");
  folder.Write("b.jsonl", "{}");
  const auto error = [&](const std::string& configs) {
    folder.Write("README.md", "---\n" + configs + "\n---\n");
    const auto data = ListDataFiles({folder.path()});
    return data.ok() ? "read" : std::string(data.status().message());
  };
  const std::string one = "- config_name: en\n  data_files: a.jsonl\n";
  const std::string other = "- config_name: de\n  data_files: b.jsonl\n";
  EXPECT_THAT(error("configs:\n" + one + other), HasSubstr("the configurations en, de, and none"));
  EXPECT_THAT(error("configs:\n" + one + one), HasSubstr("two configs of the name en"));
  EXPECT_THAT(error("configs:\n" + one + "  data_files: b.jsonl"), HasSubstr("line 5 of the card"));
  EXPECT_THAT(error("configs:\n" + one + "configs:\n" + other), HasSubstr("line 5 of the card"));
  EXPECT_THAT(error("configs: [{config_name: en, data_files: a.jsonl}]"),
              HasSubstr("README.md: line 2 of the card"));
  EXPECT_THAT(error("configs:\n- {config_name: en, data_files: a.jsonl}"),
              HasSubstr("README.md: line 3 of the card"));
  EXPECT_THAT(error("{configs: []}"), HasSubstr("README.md: line 2 of the card"));
  EXPECT_THAT(error("configs:\n" + one + "  default: perhaps"),
              HasSubstr("README.md: default of the card's config en is not understood"));
  EXPECT_THAT(error("configs:\n- config_name: x\n  data_files: \"\\x61.jsonl\""),
              HasSubstr("line 4 of the card"));
  EXPECT_THAT(
      error("configs:\n- config_name: x\n  data_files:\n  - split: train\n    path: a.jsonl\n"
            "  - split: train\n    path: b.jsonl"),
      HasSubstr("two splits in the config x of the name train"));
  EXPECT_THAT(error("configs:\n" + one + "  sep: \";\"\n  names: [a, b]"),
              HasSubstr("README.md: the configuration en sets sep, names, which dsrun does not"));
  EXPECT_EQ(error("configs:\n" + one + "  sep: x\n" + other + "  default: true"), "read");
  folder.Write(".huggingface.yaml", "configs:\n" + one);
  EXPECT_THAT(error("configs:\n" + one), HasSubstr(".huggingface.yaml: this file may list"));
}

// As Python's gzip reads them.
TEST(DataRows, MembersOfGzipFilesFollowOneAnother) {
  const DataFolder folder;
  const std::string member = ReadFile(kDataGoldens / "packed.jsonl.gz").value();
  const std::string zeros(300'000, '\0');
  const auto count = [&](const std::string& bytes) {
    const auto rows = ReadRows(folder.Write("a.jsonl.gz", bytes));
    EXPECT_TRUE(rows.ok()) << rows.status().message();
    return rows.ok() ? rows->size() : 0;
  };
  EXPECT_EQ(count(member + zeros), 3U);
  EXPECT_EQ(count(member + member), 6U);
  EXPECT_EQ(count(member + zeros + member + zeros), 6U);
  for (const std::string& between : {std::string(), zeros}) {
    const std::string location = "at byte " + std::to_string(member.size() + between.size());
    const std::string path = folder.Write("b.jsonl.gz", member + between + "{\"text\": 1}\n");
    EXPECT_THAT(ErrorOf(path), HasSubstr("b.jsonl.gz: " + location + " the compressed data ends"));
  }
  EXPECT_THAT(ErrorOf(folder.Write("c.jsonl.gz", member + "\x1f!")), HasSubstr("damaged"));
  EXPECT_THAT(ErrorOf(folder.Write("d.jsonl.gz", member + member.substr(0, 40))),
              HasSubstr("truncated"));
}

TEST(DataFolders, GiveAnotherSplitForEvaluation) {
  const auto names = [](const DataFolder& folder) {
    const auto data = ListDataFiles({folder.path()}, DataUse::kEvaluation);
    return data.ok() ? TakenFiles(folder, *data)
                     : std::vector{std::string(data.status().message())};
  };
  const DataFolder folder;
  folder.Write("train.jsonl", "{}");
  EXPECT_THAT(names(folder),
              ElementsAre(HasSubstr("there is no split \"validation\" or \"test\"; the "
                                    "files belong to train (train.jsonl)")));
  folder.Write("test.jsonl", "{}");
  EXPECT_THAT(names(folder), ElementsAre("test.jsonl"));
  folder.Write("dev.jsonl", "{}");
  EXPECT_THAT(names(folder), ElementsAre("dev.jsonl"));
  const DataFolder plain;
  plain.Write("a.jsonl", "{}");
  EXPECT_THAT(names(plain), ElementsAre("a.jsonl"));
  const auto saved = ListDataFiles({kDataGoldens / "saved_splits"}, DataUse::kEvaluation);
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_THAT(saved->files[0].path.string(),
              HasSubstr("saved_splits/test/data-00000-of-00001.arrow"));
  EXPECT_THAT(saved->notices, ElementsAre(HasSubstr("the splits train are not read")));
}

TEST(DataFolders, OfTheCacheAreTheSnapshotOfMain) {
  const DataFolder folder;
  folder.Write("blobs/123", "{\"text\": \"new\"}\n");
  folder.Write("refs/main", "abc");
  for (const char* const commit : {"abc", "def"}) {
    const fs::path data = fs::path(folder.path()) / "snapshots" / commit / "data";
    fs::create_directories(data);
    fs::create_symlink("../../../blobs/123", data / "train-00000-of-00001.jsonl");
    fs::create_symlink("../../../blobs/123", data / "test-00000-of-00001.jsonl");
  }
  const auto data = ListDataFiles({folder.path()});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_THAT(TakenFiles(folder, *data),
              ElementsAre("snapshots/abc/data/train-00000-of-00001.jsonl"));
  ASSERT_EQ(data->notices.size(), 1U);
  EXPECT_THAT(data->notices[0], HasSubstr("test (data/test-00000-of-00001.jsonl)"));
  fs::remove(fs::path(folder.path()) / "refs/main");
  EXPECT_THAT(ListDataFiles({folder.path()}).status().message(),
              HasSubstr("the cache has 2 snapshots"));
}

TEST(DataRows, ErrorsOfJsonNameTheLine) {
  const DataFolder folder;
  const auto error = [&](const std::string& text) { return ErrorOf(folder.Write("a.json", text)); };
  EXPECT_THAT(error("[{\"a\": 1},\n {\"b\": 2"),
              HasSubstr("a.json:2: the file ends inside a value"));
  EXPECT_THAT(error("[{\"a\": 1}\n\n {\"b\": 2}]"), HasSubstr("a.json:3: ',' or ']' is missing"));
  EXPECT_THAT(error("[{\"a\": 1},\n]"),
              HasSubstr("a.json:2: a row is missing between ',' and ']'"));
  EXPECT_THAT(error("[{\"a\": 1}]\n[]"),
              HasSubstr("a.json:2: there is more after the array's end"));
  EXPECT_THAT(error("[{\"a\": \"x\ny\"}]"), HasSubstr("a.json:1: a text is not closed"));
  EXPECT_THAT(error("\n12"), HasSubstr("a.json:2: JSON rows begin with '[' or '{', not with '1'"));
  EXPECT_EQ(error("[]"), "read: []");
  EXPECT_EQ(error("[\n{\"a\":\n1}]"), "read: [{\"a\":1}]");
}

TEST(DataRows, OneObjectWithAListAsksForTheField) {
  const DataFolder folder;
  const std::string nested =
      folder.Write("n.json", R"({"v": 1, "data": [{"text": "a"}], "m": [{}]})");
  EXPECT_THAT(ErrorOf(nested), HasSubstr("list of objects under: data, m; name the one with the "
                                         "rows by --data_field NAME"));
  EXPECT_EQ(ErrorOf(nested, "data"), R"(read: [{"text":"a"}])");
  EXPECT_THAT(ErrorOf(nested, "dta"),
              HasSubstr("has no such field (it has: v, data, m); did you mean"));
  EXPECT_THAT(ErrorOf(nested, "v"), HasSubstr("--data_field v: the field is no list"));
  EXPECT_THAT(ErrorOf(folder.Write("l.json", "[{}]"), "data"), HasSubstr("the file is an array"));
  const std::string chat =
      folder.Write("c.json", R"({"messages": [{"role": "user"}], "tools": [{}]})");
  EXPECT_EQ(ErrorOf(chat), R"(read: [{"messages":[{"role":"user"}],"tools":[{}]}])");
}

TEST(DataRows, ErrorsOfTablesNameTheLine) {
  const DataFolder folder;
  const auto error = [&](const std::string& text) { return ErrorOf(folder.Write("a.csv", text)); };
  EXPECT_THAT(error("a,b\n\"x\n\",1\n1,2,3\n"),
              HasSubstr("a.csv:4: the row has 3 cells, and the header names 2"));
  EXPECT_THAT(error("a,b\n1,2\n\"x,1\n"), HasSubstr("a.csv:3: the file ends inside a quoted cell"));
  EXPECT_THAT(error("a\nf\xfcr\n"), HasSubstr("a.csv:2: column \"a\" is not UTF-8 text"));
  std::string late = "n\n";
  for (int i = 0; i < 10'000; ++i) late += "1\n";
  EXPECT_THAT(error(late + "x\n"), HasSubstr("a.csv:10002: column \"n\" has another type here"));
  EXPECT_EQ(error("a,b\n"), "read: []");
}

TEST(DataRows, TablesAreBoundedInMemory) {
  const DataFolder folder;
  const auto error = [&](const std::string& text, TableRows::Limits limits) {
    TableRows rows(ByteStream::Open(folder.Write("a.csv", text)).value(), ',', limits);
    const auto read = rows.Next();
    return read.ok() ? "read" : std::string(read.status().message());
  };
  const std::string cell(3000, 'x');
  EXPECT_EQ(error("a\n" + cell + "\n", {.row_bytes = 4096}), "read");
  const std::string large = "a.csv:2: the row that begins here has more than 2.00 KiB";
  EXPECT_THAT(error("a\n" + cell + "\n", {.row_bytes = 2048}), HasSubstr(large));
  EXPECT_THAT(error("a\n\"" + cell + "\"\n", {.row_bytes = 2048}), HasSubstr(large));
  EXPECT_THAT(error("a,b\n" + cell.substr(1500) + "," + cell.substr(1500), {.row_bytes = 2048}),
              HasSubstr(large));
  EXPECT_THAT(error("a,b,c\n1,2,3\n", {.columns = 2}),
              HasSubstr("a.csv:1: the row that begins here has more than 2 cells"));
  EXPECT_EQ(error("n\n1\n2\nx\n", {}), "read") << "a column of texts";
  EXPECT_THAT(error("n\n1\n2\nx\n", {.typed_bytes = 2 * sizeof(std::string)}),
              HasSubstr("a.csv:4: column \"n\" has another type here than in the first 2 rows"));
}

TEST(DataRows, ColumnsOfOneNameAreNumbered) {
  const DataFolder folder;
  EXPECT_EQ(ErrorOf(folder.Write("a.csv", "a,a,a.1,a\n1,2,3,4\n")),
            R"(read: [{"a":1,"a.1":2,"a.1.1":3,"a.2":4}])");
  std::string header, row;
  for (int i = 0; i < 16'000; ++i) {
    header += i == 0 ? "a" : ",a";
    row += i == 0 ? "1" : ",1";
  }
  TableRows rows(ByteStream::Open(folder.Write("w.csv", header + "\n" + row + "\n")).value(), ',');
  EXPECT_THAT(rows.Next().value()->lines, HasSubstr(R"("a.15999":1})"));
}

TEST(DataFolders, PatternsOfCardsAreMatchedInOnePass) {
  std::string path, pattern;
  for (int i = 0; i < 60; ++i) path += "a/";
  for (int i = 0; i < 20; ++i) pattern += "**/a/";
  EXPECT_TRUE(MatchesCardPattern(pattern + "**", path + "b"));
  EXPECT_TRUE(MatchesCardPattern(pattern + "b", path + "b"));
  EXPECT_FALSE(MatchesCardPattern(pattern + "c", path + "b"));
  EXPECT_TRUE(MatchesCardPattern("**/x-*.jsonl", "x-1.jsonl"));
  EXPECT_FALSE(MatchesCardPattern("d/**", "d"));
  EXPECT_FALSE(MatchesCardPattern("d/**/x", "d/y/x/z"));
}

TEST(DataFolders, CardsAreNotNestedWithoutEnd) {
  const auto repeat = [](const std::string& text) {
    std::string all;
    for (int i = 0; i < 100'000; ++i) all += text;
    return all;
  };
  for (const std::string& value :
       {"  x: " + repeat("[") + repeat("]"), "  " + repeat("- ") + "a: b"}) {
    const auto read = ReadCardConfigs("---\nconfigs:\n" + value + "\n---\n");
    EXPECT_THAT(read.status().message(), HasSubstr("line 3 of the card's configs"));
  }
  const auto bytes = ReadCardConfigs("---\nconfigs:\n- config_name: [\xff]\n---\n");
  EXPECT_TRUE(bytes.ok());
}

TEST(DataRows, PlacesAreLinesOfTheFile) {
  const DataFolder folder;
  const auto locations = [&](const std::string& path) {
    auto reader = DocumentReader::Open({path}).value();
    std::vector<std::string> found;
    for (auto batch = reader.Next().value(); batch; batch = reader.Next().value()) {
      EXPECT_TRUE(ForEachDocument(*batch, [&](std::string_view, const std::string& location) {
                    found.push_back(location.substr(location.rfind(':') + 1));
                    return OkStatus();
                  }).ok());
    }
    return found;
  };
  EXPECT_THAT(locations(folder.Write("a.json", "[\n{\n\"a\": 1},\n\n{}, {}\n]")),
              ElementsAre("2", "5", "5"));
  EXPECT_THAT(locations(folder.Write("a.csv", "a\n\"x\ny\"\n\nz")), ElementsAre("2", "5"));
  EXPECT_THAT(locations(folder.Write("a.jsonl", "{}\n\n{}")), ElementsAre("1", "3"));
}

TEST(DataRows, LongOnesCrossTheBatches) {
  const DataFolder folder;
  Json rows = Json::array();
  std::string table = "text\n";
  for (int i = 0; i < 7; ++i) {
    rows.push_back({{"text", std::string(900'000, static_cast<char>('a' + i)) + "\",["}});
    table += "\"" + std::string(900'000, static_cast<char>('a' + i)) + "\"\",[\"\n";
  }
  EXPECT_EQ(ReadRows(folder.Write("a.json", rows.dump(1))).value(), rows);
  EXPECT_EQ(ReadRows(folder.Write("a.csv", table)).value(), rows);
}

TEST(DataRows, NaNIsNullAndTextsStay) {
  const DataFolder folder;
  const std::string path = folder.Write(
      "a.jsonl", R"({"text": "NaN -Infinity \" NaN", "x": NaN, "y": [-Infinity, Infinity, 1]})");
  EXPECT_EQ(ErrorOf(path), "read: " + Json::parse(R"([{"text": "NaN -Infinity \" NaN", "x": null,
                                                      "y": [null, null, 1]}])")
                                          .dump());
}

}  // namespace
}  // namespace ds::tokenizer
