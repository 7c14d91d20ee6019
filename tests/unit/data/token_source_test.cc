#include "runtime/plan/data/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> ReadAll(const TokenSource& source) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(source.size()));
  EXPECT_TRUE(source.Read(0, tokens).ok());
  return tokens;
}

std::string OpenError(const std::vector<std::string>& paths,
                      TokenWidth width = TokenWidth::kUint16) {
  const auto source = TokenSource::Open(paths, width);
  EXPECT_FALSE(source.ok());
  return source.status().message();
}

TEST(TokenSource, TextIsItsBytes) {
  ScratchFolder folder;
  const auto source = TokenSource::Open({folder.Write("a.txt", "ab\xff")}, TokenWidth::kUint16);
  ASSERT_TRUE(source.ok());
  EXPECT_THAT(ReadAll(*source), ElementsAre('a', 'b', 0xff));
}

TEST(TokenSource, FolderIsItsVisibleFilesSortedByPath) {
  ScratchFolder folder;
  folder.Write("b/one.txt", "3");
  folder.Write("a.txt", "1");
  folder.Write("a/z.txt", "2");
  folder.Write(".hidden", "x");
  folder.Write(".git/config", "x");
  folder.Write("c/empty.txt", "");
  const auto source = TokenSource::Open({folder.path()}, TokenWidth::kUint16);
  ASSERT_TRUE(source.ok());
  // '/' sorts as a separator: the folder "a" comes before the file "a.txt".
  EXPECT_THAT(ReadAll(*source), ElementsAre('2', '1', '3'));
}

TEST(TokenSource, BinFilesHoldLittleEndianIds) {
  ScratchFolder folder;
  const std::string narrow = folder.WriteTokens<std::uint16_t>("a.bin", {1, 65535});
  const std::string wide = folder.WriteTokens<std::uint32_t>("b.bin", {7, 4'000'000'000});
  EXPECT_THAT(ReadAll(TokenSource::Open({narrow}, TokenWidth::kUint16).value()),
              ElementsAre(1, 65535));
  EXPECT_THAT(ReadAll(TokenSource::Open({wide}, TokenWidth::kUint32).value()),
              ElementsAre(7, 4'000'000'000));
}

TEST(TokenSource, FingerprintsAreOfTheTokensAndOfWhereFilesEnd) {
  ScratchFolder folder;
  const auto fingerprint = [](const std::vector<std::string>& paths) {
    return TokenSource::Open(paths, TokenWidth::kUint16)->TakeFingerprints()->ends;
  };
  const std::string text(30'000, 'x');
  const std::uint32_t of_text = fingerprint({folder.Write("a.txt", text)});
  EXPECT_EQ(fingerprint({folder.Write("elsewhere/b.txt", text)}), of_text);
  for (const std::size_t changed : {std::size_t{0}, text.size() - 1}) {
    std::string other = text;
    other[changed] = 'y';
    EXPECT_NE(fingerprint({folder.Write("c.txt", other)}), of_text) << changed;
  }
  EXPECT_NE(fingerprint({folder.Write("d1.txt", text.substr(0, 15'000)),
                         folder.Write("d2.txt", text.substr(15'000))}),
            of_text);
}

TEST(TokenSource, AChangeBetweenTheEndsOfAFileIsNoticed) {
  ScratchFolder folder;
  const auto between = [&](const std::string& text) {
    const std::string path = folder.Write("a.txt", text);
    return TokenSource::Open({path}, TokenWidth::kUint16)->TakeFingerprints()->middles;
  };
  // Blocks lie next to one another in a file of this size: any token counts.
  const std::string small(50'000, 'x');
  const std::uint32_t of_small = between(small);
  for (const std::size_t changed : {8192, 20'000, 25'000, 50'000 - 8193}) {
    std::string other = small;
    other[changed] = 'y';
    EXPECT_NE(between(other), of_small) << changed;
  }
  // In a large one any run that is longer than the way from one to the next.
  std::string large(1'000'000, 'x');
  const std::uint32_t of_large = between(large);
  for (const std::size_t changed : {9000, 345'678, 970'000}) {
    std::string other = large;
    other.replace(changed, large.size() / 64, large.size() / 64, 'y');
    EXPECT_NE(between(other), of_large) << changed;
  }
  EXPECT_EQ(between(large), of_large);
}

TEST(TokenSource, ReadsAcrossFilesAndNamesThePlace) {
  ScratchFolder folder;
  const std::string a = folder.WriteTokens<std::uint16_t>("a.bin", {0, 1, 2});
  const std::string b = folder.WriteTokens<std::uint16_t>("b.bin", {3, 4});
  const TokenSource source = TokenSource::Open({a, b}, TokenWidth::kUint16).value();
  std::vector<std::int64_t> middle(3);
  ASSERT_TRUE(source.Read(1, middle).ok());
  EXPECT_THAT(middle, ElementsAre(1, 2, 3));
  EXPECT_EQ(source.DescribePosition(4), b + ", token 1 (byte 2)");
}

TEST(TokenSource, JsonlIsItsTexts) {
  ScratchFolder folder;
  const std::string path = folder.Write("a.jsonl", "{\"text\": \"hi\"}\n\n{\"text\": \"\\n\"}");
  EXPECT_THAT(ReadAll(TokenSource::Open({path}, TokenWidth::kUint16).value()),
              ElementsAre('h', 'i', '\n', '\n', '\n'));
  const std::string bad = folder.Write("bad.jsonl", "{\"text\": \"hi\"}\n{\"txt\": 1}\n");
  EXPECT_THAT(OpenError({bad}),
              ::testing::StartsWith(bad + ":2: there is no text under \"text\"; "));
}

TEST(TokenSource, RowsOfOtherFormatsAndPackedTextsAreBytesToo) {
  ScratchFolder folder;
  const auto read = [](const std::string& path, const std::string& data_field = "") {
    return ReadAll(TokenSource::Open({path}, TokenWidth::kUint16, data_field).value());
  };
  EXPECT_THAT(read(folder.Write("a.json", "[{\"text\": \"h\"}, \"i\"]")),
              ElementsAre('h', '\n', 'i', '\n'));
  EXPECT_THAT(read(folder.Write("b.json", "{\"rows\": [\"h\"]}"), "rows"), ElementsAre('h', '\n'));
  EXPECT_THAT(read(folder.Write("a.csv", "text,n\n\"h\ni\",1\n")),
              ElementsAre('h', '\n', 'i', '\n'));
  // gzip's bytes of "hi"
  const std::string packed("\x1f\x8b\x08\0\0\0\0\0\2\xff\xcb\xc8\x04\0\xac\x2a\x93\xd8\2\0\0\0",
                           22);
  EXPECT_THAT(read(folder.Write("a.txt.gz", packed)), ElementsAre('h', 'i'));
  EXPECT_THAT(OpenError({folder.Write("cut.txt.gz", packed.substr(0, 15))}),
              HasSubstr("is truncated"));
}

TEST(TokenSource, AByteOrderMarkIsNoToken) {
  ScratchFolder folder;
  const std::string path = folder.Write("a.txt", "\xef\xbb\xbfhi");
  const TokenSource source = TokenSource::Open({path}, TokenWidth::kUint16).value();
  EXPECT_THAT(ReadAll(source), ElementsAre('h', 'i'));
  EXPECT_EQ(source.DescribePosition(1), path + ", token 1 (byte 4)");
}

TEST(TokenSource, RefusesFilesWithoutTokens) {
  ScratchFolder folder;
  EXPECT_THAT(OpenError({folder.path()}), HasSubstr("has no files"));
  const std::string empty = folder.Write("empty.txt", "");
  EXPECT_EQ(OpenError({empty}), empty + ": the file is empty");
  const std::string no_rows = folder.Write("blank.jsonl", "\n");
  EXPECT_EQ(OpenError({no_rows}), "the data is empty: " + no_rows);
  EXPECT_THAT(OpenError({folder.path() + "/absent"}), HasSubstr("absent: no such data file"));
}

TEST(TokenSource, RefusesPartsOfATokenAndMixedKinds) {
  ScratchFolder folder;
  const std::string odd = folder.Write("odd.bin", "abc");
  EXPECT_THAT(OpenError({odd}), HasSubstr("odd.bin: 3 bytes are not a multiple of 2-byte tokens"));
  const std::string bin = folder.Write("a.bin", "ab");
  const std::string text = folder.Write("a.txt", "ab");
  EXPECT_THAT(OpenError({bin, text}), HasSubstr("cannot be mixed"));
}

TEST(TokenSource, AFileThatShrinksIsAnError) {
  ScratchFolder folder;
  const std::string path = folder.Write("a.txt", "abcdef");
  const TokenSource source = TokenSource::Open({path}, TokenWidth::kUint16).value();
  std::filesystem::resize_file(path, 2);
  std::vector<std::int64_t> tokens(6);
  EXPECT_THAT(source.Read(0, tokens).message(), HasSubstr("shrank while it was used; byte 2"));
}

// Puts the soft limit of open files back when it goes.
class OpenFilesLimit {
 public:
  explicit OpenFilesLimit(rlim_t limit) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit lower{limit, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  }
  ~OpenFilesLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(TokenSource, AFolderMayHaveMoreFilesThanAProcessMayOpen) {
  ScratchFolder folder;
  for (int i = 0; i < 400; ++i)
    folder.Write(std::to_string(1000 + i) + ".txt", std::string(2, char(1 + i % 100)));
  const OpenFilesLimit limit(200);
  const auto source = TokenSource::Open({folder.path()}, TokenWidth::kUint16);
  ASSERT_TRUE(source.ok()) << source.status().message();
  const std::vector<std::int64_t> tokens = ReadAll(*source);
  ASSERT_EQ(tokens.size(), 800U);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i], static_cast<std::int64_t>(1 + i / 2 % 100));
  }
}

TEST(TokenSource, ParsesTheTwoTokenDtypes) {
  EXPECT_EQ(ParseTokenDtype("uint16").value(), TokenWidth::kUint16);
  EXPECT_EQ(ParseTokenDtype("uint32").value(), TokenWidth::kUint32);
  EXPECT_FALSE(ParseTokenDtype("int64").ok());
}

}  // namespace
}  // namespace ds::data
