// How a data file is read, by its name and its first bytes, and what is refused of files and
// folders.

#include "runtime/tokenizer/corpus/data_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tokenizer/corpus/data_files.h"
#include "runtime/tokenizer/corpus/row_json.h"
#include "tests/unit/tokenizer/data_folder.h"

namespace ds::tokenizer {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string KindErrorOf(const std::string& name, std::string_view begin) {
  const auto file = JudgeDataFile(name, begin);
  return file.ok() ? "no error" : std::string(file.status().message());
}

TEST(DataKind, IsChosenByTheFileName) {
  const auto kind = [](const std::string& name, std::string_view begin) {
    return JudgeDataFile(name, begin)->kind;
  };
  EXPECT_EQ(kind("a.txt", "{}"), DataKind::kText);
  EXPECT_EQ(kind("a.md", "# x"), DataKind::kText);
  EXPECT_EQ(kind("a.py", "x = {}"), DataKind::kText);
  EXPECT_EQ(kind("a.TXT", "x"), DataKind::kText);
  EXPECT_EQ(kind("a.jsonl", " {}"), DataKind::kLines);
  EXPECT_EQ(kind("a.ndjson.gz", "{}"), DataKind::kLines);
  EXPECT_EQ(kind("a.jsonl", "\xef\xbb\xbf\n[{}]"), DataKind::kJson);
  EXPECT_EQ(kind("a.json", "{}"), DataKind::kJson);
  EXPECT_EQ(kind("a.tsv", "a\tb"), DataKind::kTable);
  EXPECT_EQ(JudgeDataFile("a.tsv.gz", "a\tb")->separator, '\t');
  EXPECT_EQ(JudgeDataFile("a.csv", "a,b")->separator, ',');
  EXPECT_EQ(kind("a.parquet", "PAR1...."), DataKind::kRows);
  EXPECT_EQ(kind("a.arrow", "\xff\xff\xff\xff\x10"), DataKind::kRows);
  EXPECT_EQ(kind("a.bin", "\x1f\x8b\x00\x01"s), DataKind::kTokens);
}

TEST(DataKind, OfAnUnknownEndingIsATextThatLooksLikeOne) {
  EXPECT_EQ(JudgeDataFile("shakespeare", "To be gr\xc3\xbc")->kind, DataKind::kText);
  EXPECT_EQ(JudgeDataFile("x.cut", std::string(kJudgedBytes - 1, 'a') + "\xc3")->kind,
            DataKind::kText);
  EXPECT_THAT(KindErrorOf("x.bak", " {\"text\": 1}"), HasSubstr("looks like JSON: name it .jsonl"));
  EXPECT_THAT(KindErrorOf("x.latin", "f\xfcr immer"), HasSubstr("byte 1 is not UTF-8 text"));
}

TEST(DataKind, RefusalsNameTheReason) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n";
  for (const char* const name : {"a.jsonl", "a.parquet", "a.bin", "a.txt", "a"}) {
    EXPECT_THAT(KindErrorOf(name, pointer), HasSubstr("Git LFS pointer")) << name;
  }
  EXPECT_THAT(KindErrorOf("a.txt", "\xff\xfeh\0i\0"s), HasSubstr("UTF-16"));
  EXPECT_THAT(KindErrorOf("a.csv", "h\0e\0l\0l\0o\0,\0"s), HasSubstr("iconv -f UTF-16 -t UTF-8"));
  EXPECT_THAT(KindErrorOf("a.txt", "%PDF-1.7"), HasSubstr("a PDF file"));
  EXPECT_THAT(KindErrorOf("a.txt", "ab\0c"s), HasSubstr("a binary file (byte 2 is 0)"));
  EXPECT_THAT(KindErrorOf("a.jsonl", "PAR1xx"), HasSubstr("a Parquet file: name it .parquet"));
  EXPECT_THAT(KindErrorOf("a.jsonl", "<!DOCTYPE html>"),
              HasSubstr("a page that was saved in place"));
  EXPECT_THAT(KindErrorOf("a.parquet", "{\"text\""),
              HasSubstr("does not begin as Parquet files do"));
  EXPECT_THAT(KindErrorOf("a.arrow", "PAR1"), HasSubstr("does not begin as Arrow files do"));
  EXPECT_THAT(KindErrorOf("a.idx", "MMIDIDX"), HasSubstr("name the .bin file"));
}

TEST(DataKind, PackedFilesNameTheCommand) {
  EXPECT_THAT(KindErrorOf("a.jsonl.zst", "\x28\xb5\x2f\xfd"), HasSubstr("zstd -d"));
  EXPECT_THAT(KindErrorOf("a.jsonl", "\x28\xb5\x2f\xfdx"), HasSubstr("Zstandard"));
  EXPECT_THAT(KindErrorOf("a.txt",
                          "\xfd"
                          "7zXZ\0"s),
              HasSubstr("xz -dk"));
  EXPECT_THAT(KindErrorOf("a.zip", "PK\x03\x04"), HasSubstr("unzip"));
  EXPECT_THAT(KindErrorOf("a.tar.gz", "x"), HasSubstr("tar -xf"));
  EXPECT_THAT(KindErrorOf("a", std::string(257, '\0') + "ustar\0"s), HasSubstr("a tar archive"));
  EXPECT_THAT(KindErrorOf("a.bin.gz", "x"), HasSubstr("unpack it first"));
}

std::vector<std::string> NamesOf(const DataFiles& data) {
  std::vector<std::string> names;
  for (const DataFile& file : data.files) names.push_back(file.path.filename());
  return names;
}

std::string ListError(const std::string& path) {
  return std::string(ListDataFiles({path}).status().message());
}

TEST(DataFiles, OfAFolderAreNoCardsAndIndices) {
  const DataFolder folder;
  folder.Write("b.txt", "b");
  folder.Write("a.cc", "a");
  folder.Write("empty.txt", "");
  for (const char* const name : {"README.md", "notes.md", "LICENSE", "LICENSE.txt", "state.json",
                                 "x.index.json", ".gitattributes", "figure.png"}) {
    folder.Write(name, "x");
  }
  const auto data = ListDataFiles({folder.path()});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_THAT(NamesOf(*data), ElementsAre("a.cc", "b.txt"));
  EXPECT_THAT(data->notices, ElementsAre(AllOf(HasSubstr("a.cc, b.txt"),
                                               HasSubstr("8 files are skipped: LICENSE"))));
}

TEST(DataFiles, OfSeveralFormatsAreRefused) {
  const DataFolder folder;
  folder.Write("a.jsonl", "{}");
  folder.Write("b.csv", "a\n1");
  EXPECT_THAT(
      ListError(folder.path()),
      AllOf(HasSubstr("several formats (1 like a.jsonl, 1 like b.csv)"), HasSubstr("*.jsonl'")));
  EXPECT_THAT(NamesOf(*ListDataFiles({folder.path() + "/*.csv"})), ElementsAre("b.csv"));
}

TEST(DataFiles, AreRefusedWhereThereIsNothing) {
  const DataFolder folder;
  std::filesystem::create_directories(folder.path() + "/none");
  EXPECT_THAT(ListError(folder.path() + "/none"), HasSubstr("the data folder has no files"));
  folder.Write("cards/README.md", "# x");
  EXPECT_THAT(ListError(folder.path() + "/cards"),
              HasSubstr("(there is: README.md); name the files"));
  EXPECT_THAT(ListError(folder.Write("empty/a.txt", "")), HasSubstr("the file is empty"));
  EXPECT_THAT(ListError(folder.path() + "/empty"), HasSubstr("(there is: a.txt); name the files"));
  EXPECT_THAT(ListError(folder.path() + "/empty/*.txt"), HasSubstr("all files of this pattern"));
  EXPECT_THAT(ListError(folder.path() + "/x"), HasSubstr("no such data file or folder"));
  EXPECT_THAT(ListError(folder.path() + "/x*"), HasSubstr("no data file matches this pattern"));
}

TEST(DataFiles, OfADanglingLinkAreNamed) {
  namespace fs = std::filesystem;
  const DataFolder folder;
  folder.Write("a.jsonl", "{}");
  fs::create_symlink("../blobs/gone", folder.path() + "/b.jsonl");
  EXPECT_THAT(ListError(folder.path()), HasSubstr("b.jsonl: the link leads to no file"));
  fs::remove(folder.path() + "/b.jsonl");
  fs::create_symlink("README.md", folder.path() + "/README.md");
  EXPECT_THAT(ListError(folder.path()), HasSubstr("README.md: "));
  EXPECT_THAT(ListError(folder.path() + "/README.md"),
              AllOf(HasSubstr("README.md: "), Not(HasSubstr("no such data file"))));
  fs::rename(folder.path() + "/README.md", folder.path() + "/.hidden");
  EXPECT_THAT(NamesOf(*ListDataFiles({folder.path()})), ElementsAre("a.jsonl"));
  fs::create_symlink("__cache", folder.path() + "/__cache");
  EXPECT_THAT(ListError(folder.path()), HasSubstr("__cache: "));
}

TEST(DataFiles, OneThatIsPackedInAFolderIsRefused) {
  const DataFolder folder;
  folder.Write("a.jsonl", "{}");
  folder.Write("b.jsonl.zst", "\x28\xb5\x2f\xfd");
  EXPECT_THAT(ListError(folder.path()), HasSubstr("b.jsonl.zst: this is Zstandard data"));
}

TEST(DataFiles, ADamagedGzipFileIsNamed) {
  const DataFolder folder;
  EXPECT_THAT(ListError(folder.Write("a.jsonl.gz", "\x1f\x8b\x08\0\0\0\0\0\0\x03"s)),
              HasSubstr("a.jsonl.gz: the compressed data is truncated"));
}

TEST(RowJson, ReasonsNameTheColumn) {
  const auto reason = [](std::string_view row) { return std::string(CheckRow(row).message()); };
  EXPECT_THAT(reason(R"({"text": "a \ud83d\ude00"})"), IsEmpty());
  EXPECT_THAT(reason(R"({"text": "\\ud800"})"), IsEmpty());
  EXPECT_THAT(reason(R"({"text": "a\ud800 b"})"),
              HasSubstr("column 12: the escape \\ud800 is a lone surrogate"));
  EXPECT_THAT(reason(R"({"text": "\uDE00"})"), HasSubstr("column 11: the escape \\uDE00"));
  EXPECT_THAT(reason(R"({"text": 1)"), HasSubstr("the row is no JSON: column 11"));
  EXPECT_THAT(reason("{\"text\": \"f\xfcr\"}"), HasSubstr("the row is no JSON: column 12"));
  EXPECT_THAT(reason("[1]"), HasSubstr("no JSON object but a list"));
  EXPECT_THAT(reason(R"({"a": 1} {"b": 2})"),
              HasSubstr("column 10: a line of .jsonl is one row, and something follows it; a file "
                        "with several rows on a line is to be named .json"));
  EXPECT_THAT(reason(R"({"n": 1e999})"),
              HasSubstr("column 7: the number 1e999 is larger than the largest double, 1.8e308"));
}

TEST(RowJson, ReasonsOfALongRowAreShort) {
  const auto reason = [](const std::string& row) { return std::string(CheckRow(row).message()); };
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "\u8a9e";
  const std::string cut = reason("{\"text\": \"" + text);
  EXPECT_LT(cut.size(), 250u);
  EXPECT_THAT(cut, HasSubstr("the row is no JSON: column 300011: "));
  EXPECT_THAT(cut, HasSubstr("it ends inside a text: it is incomplete"));
  const std::string overflow = reason("{\"n\": 1" + std::string(100'000, '0') + "}");
  EXPECT_LT(overflow.size(), 250u);
  EXPECT_THAT(overflow, HasSubstr("column 7: the number 1000"));
}

}  // namespace
}  // namespace ds::tokenizer
