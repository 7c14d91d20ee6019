// The rows of files that pyarrow has written; where this build has no Arrow, how to get it.

#include "runtime/tokenizer/corpus/row_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/files.h"
#include "runtime/tokenizer/corpus/arrow_values.h"
#include "runtime/tokenizer/corpus/documents.h"
#include "runtime/tokenizer/corpus/row.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

fs::path ArrowGolden(const std::string& name) {
  return fs::path(DS_SOURCE_DIR "/tests/unit/tokenizer/arrow_goldens") / name;
}

std::vector<nlohmann::ordered_json> ParseLines(const std::string& lines) {
  std::vector<nlohmann::ordered_json> rows;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    rows.push_back(nlohmann::ordered_json::parse(line));
  }
  return rows;
}

bool HasArrow() { return fs::exists(DS_BIN_DIR "/libdsrun_arrow.so"); }

class RowFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasArrow()) GTEST_SKIP() << "this build has no Arrow";
  }
};

TEST(RowFile, ExplainsHowToInstallArrow) {
  const auto file = RowFile::Open(ArrowGolden("kinds.parquet"));
  EXPECT_EQ(file.ok(), HasArrow());
  if (file.ok()) return;
  EXPECT_THAT(file.status().message(), HasSubstr("kinds.parquet: Parquet and Arrow files need"));
  EXPECT_THAT(file.status().message(), HasSubstr("scripts/setup.sh fetches them"));
}

std::vector<nlohmann::ordered_json> ReadRowFile(const std::string& name) {
  RowFile file = RowFile::Open(ArrowGolden(name)).value();
  std::vector<nlohmann::ordered_json> rows;
  for (auto read = file.Next().value(); read; read = file.Next().value()) {
    EXPECT_EQ(read->first, rows.size() + 1);
    for (auto& row : ParseLines(read->lines)) rows.push_back(std::move(row));
  }
  return rows;
}

TEST_F(RowFileTest, RowsOfEveryFormatAndKindAreThoseOfPyarrow) {
  const auto expected = ParseLines(ReadFile(ArrowGolden("rows.jsonl")).value());
  for (const char* name : {"kinds.parquet", "kinds.feather", "kinds.arrow"}) {
    EXPECT_EQ(ReadRowFile(name), expected) << name;
  }
}

// `datasets` stores objects that differ between rows as JSON text of an extension type. A kind that
// JSON has not is no text.
TEST_F(RowFileTest, ObjectsThatDifferBetweenRowsAreObjects) {
  const auto expected = ParseLines(ReadFile(ArrowGolden("objects.jsonl")).value());
  for (const char* name : {"objects.parquet", "objects.arrow"}) {
    auto rows = ReadRowFile(name);
    ASSERT_EQ(rows.size(), expected.size()) << name;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i]["when"].dump(), R"({"arrow":"timestamp[us]"})");
      EXPECT_EQ(rows[i]["raw"].dump(), R"({"arrow":"binary"})");
      rows[i].erase("when");
      rows[i].erase("raw");
      EXPECT_EQ(rows[i], expected[i]) << name;
    }
  }
}

TEST_F(RowFileTest, AHostileObjectIsRefused) {
  const auto rows = ReadRowFile("deep.parquet");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_THAT(CheckArrowColumns(rows[0]).message(),
              HasSubstr("the JSON in the column \"deep\": the JSON is nested more than 100 deep"));
}

TEST_F(RowFileTest, ADamagedCellMakesItsOwnRowABadOne) {
  const auto rows = ReadRowFile("damaged_json.parquet");
  ASSERT_EQ(rows.size(), 5u);
  const auto error = [&](std::size_t i) {
    const auto read = ReadRow(rows[i].dump(), {}, /*has_template=*/true);
    return read.ok() ? "is read" : read.status().message();
  };
  const std::string where = "the JSON in the column \"chat_template_kwargs\"";
  EXPECT_EQ(error(0), "is read");
  EXPECT_EQ(error(1),
            where + " is damaged: line 1, column 14: it ends inside a text: it is incomplete");
  EXPECT_EQ(error(2), where + ": the JSON is nested more than 100 deep");
  EXPECT_EQ(error(3), "is read") << "Arrow keeps the last one";
  EXPECT_EQ(error(4), where + " is damaged: line 1, column 1: it is empty");
}

TEST_F(RowFileTest, RowsAreDocumentsBetweenOthers) {
  const ds::testing::TemporaryFolder folder;
  const std::string text = (folder.path() / "a.txt").string();
  ASSERT_TRUE(WriteFileAtomically(text, "a text").ok());
  auto reader = DocumentReader::Open({text, ArrowGolden("chats.parquet"), text}).value();
  std::vector<std::string> locations;
  for (auto batch = reader.Next().value(); batch; batch = reader.Next().value()) {
    ASSERT_TRUE(ForEachDocument(*batch, [&](std::string_view, const std::string& location) {
                  locations.push_back(fs::path(location).filename());
                  return OkStatus();
                }).ok());
  }
  EXPECT_THAT(locations,
              ElementsAre("a.txt", "chats.parquet:1", "chats.parquet:2", "chats.parquet:3",
                          "chats.parquet:4", "chats.parquet:5", "a.txt"));
}

TEST_F(RowFileTest, DamagedFilesAreNamed) {
  const ds::testing::TemporaryFolder folder;
  const std::string whole = ReadFile(ArrowGolden("kinds.parquet")).value();
  const fs::path path = folder.path() / "bad.parquet";
  ASSERT_TRUE(WriteFileAtomically(path, whole.substr(0, 900)).ok());
  EXPECT_THAT(RowFile::Open(path).status().message(), HasSubstr("bad.parquet: "));
  std::string changed = whole;
  for (std::size_t i = 4; i < 60; ++i) changed[i] = static_cast<char>(~changed[i]);
  ASSERT_TRUE(WriteFileAtomically(path, changed).ok());
  auto opened = RowFile::Open(path);
  ASSERT_TRUE(opened.ok()) << "what is damaged are values";
  EXPECT_THAT(opened->Next().status().message(),
              HasSubstr("bad.parquet:1: the rows from here on cannot be read"));
}

}  // namespace
}  // namespace ds::tokenizer
