// The tools that tokenizers are made of: aligned texts, tries, patterns, damaged UTF-8.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "runtime/tokenizer/decoders/decoder.h"
#include "runtime/tokenizer/models/word_cache.h"
#include "runtime/tokenizer/text/aligned_text.h"
#include "runtime/tokenizer/text/byte_letters.h"
#include "runtime/tokenizer/text/byte_trie.h"
#include "runtime/tokenizer/text/regex.h"

namespace ds::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(AlignedTextTest, MapsRemovedAndInsertedText) {
  AlignedText text("a\xC3\xA9 b", true);
  text.Filter([](char32_t c) { return c != 'a'; });
  EXPECT_EQ(text.text(), "\xC3\xA9 b");
  EXPECT_EQ(text.Origin(0, 2), (Span{1, 3}));
  text.Prepend("##");
  EXPECT_EQ(text.text(), "##\xC3\xA9 b");
  EXPECT_EQ(text.Origin(0, 1), (Span{1, 3}));
  text.Replace({{0, 4, false}, {4, 5, true}, {5, 6, false}}, "<>");
  EXPECT_EQ(text.text(), "##\xC3\xA9<>b");
  EXPECT_EQ(text.Origin(4, 6), (Span{3, 4}));
  EXPECT_EQ(text.Origin(6, 7), (Span{4, 5}));
}

TEST(AlignedTextTest, StripsWhiteSpaceOfAllKinds) {
  AlignedText text("\xE2\x80\x83 x \xC2\xA0", true);
  text.Strip(true, true);
  EXPECT_EQ(text.text(), "x");
  EXPECT_EQ(text.Origin(0, 1), (Span{4, 5}));
}

TEST(ByteTrieTest, MatchesABruteForceSearch) {
  std::mt19937 random(11);
  std::map<std::string, std::uint32_t> keys;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    std::string key;
    for (std::size_t length = 1 + random() % 6; length > 0; --length) {
      key += static_cast<char>(random() % 4 == 0 ? random() % 256 : 'a' + random() % 3);
    }
    keys[key] = i;
  }
  const ByteTrie trie({keys.begin(), keys.end()});
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (int i = 0; i < 8; ++i) {
      text += static_cast<char>(random() % 4 == 0 ? random() % 256 : 'a' + random() % 3);
    }
    std::vector<std::pair<std::size_t, std::uint32_t>> expected, found;
    for (std::size_t size = 1; size <= text.size(); ++size) {
      const auto key = keys.find(text.substr(0, size));
      if (key != keys.end()) expected.emplace_back(size, key->second);
    }
    trie.ForEachPrefix(
        text, [&](std::size_t size, std::uint32_t value) { found.emplace_back(size, value); });
    ASSERT_EQ(found, expected);
  }
}

std::vector<std::string> Matched(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  std::vector<Match> matches;
  EXPECT_TRUE(regex->FindMatches(text, &matches).ok());
  std::vector<std::string> parts;
  for (const Match& match : matches) {
    if (match.matched) parts.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
  return parts;
}

TEST(RegexTest, ReadsOnigurumasClasses) {
  EXPECT_THAT(Matched(R"(\h+)", "xyzBEEFg"), ElementsAre("BEEF"));
  EXPECT_THAT(Matched(R"(\s)", "a\xC2\x85\xE1\xA0\x8E-"), ElementsAre("\xC2\x85"));
  EXPECT_THAT(Matched(R"(\w+)", "na\xC3\xAFve_1 \xC2\xBD"), ElementsAre("na\xC3\xAFve_1"));
  EXPECT_THAT(Matched(R"(\bx\b)", "x xx x"), ElementsAre("x", "x"));
  EXPECT_THAT(Matched(R"([\u3040-\u309f]+)", "a\xE3\x81\x82\xE3\x81\x84"),
              ElementsAre("\xE3\x81\x82\xE3\x81\x84"));
  EXPECT_THAT(Matched(R"([a[bc]]+)", "xabcx"), ElementsAre("abc"));
  EXPECT_THAT(Matched(R"((?m:a.b))", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(Matched(R"(^b$)", "a\nb\nc"), ElementsAre("b"));
  EXPECT_THAT(Matched("a*", "baac"), ElementsAre("", "aa", ""));
}

TEST(RegexTest, GivesUpOnPatternsThatNeverEnd) {
  const auto regex = Regex::Compile("(?:a+)+$");
  std::vector<Match> matches;
  const Status status = regex->FindMatches(std::string(64, 'a') + "b", &matches);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
}

TEST(RegexTest, RefusesUnsupportedPatterns) {
  for (const auto& [pattern, what] : std::vector<std::pair<std::string, std::string>>{
           {R"([a\W])", "a negated class in a set at byte 2"},
           {"a{1,3}+", "a repeated {n,m} at byte 5"},
           {"[[:alpha:]]", "a POSIX bracket at byte 1"},
           {"[a[^b]]", "a negated set in a set at byte 2"},
           {R"(a\G)", "\\G at byte 1"},
           {"a\\", "a backslash at its end at byte 1"}}) {
    EXPECT_THAT(Regex::Compile(pattern).status().message(), HasSubstr(what)) << pattern;
  }
}

TEST(ByteLettersTest, AreThereAndBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    EXPECT_EQ(LettersToBytes(ByteLetters()[byte]), bytes);
    EXPECT_EQ(TokenByte(ByteToken(static_cast<unsigned char>(byte))), bytes[0]);
  }
  EXPECT_EQ(ByteLetters()[' '], "\xC4\xA0");
  EXPECT_EQ(LettersToBytes("a b"), std::nullopt);
  EXPECT_EQ(TokenByte("<0xZZ>"), std::nullopt);
}

TEST(ReplaceInvalidUtf8Test, PutsOneMarkForEachDamagedCharacter) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("a\xF0\x9F\x98z"), "a" + mark + "z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), mark);
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\x80"), mark + mark);
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), mark + mark + mark);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"), mark + mark + mark + mark);
}

TEST(WordCacheTest, ForgetsNothingButAllAtOnce) {
  WordCache cache;
  std::vector<Token> tokens;
  for (std::uint32_t i = 0; i < 200000; ++i) {
    const std::string word = "word" + std::to_string(i);
    tokens.clear();
    ASSERT_FALSE(cache.Find(word, 0, &tokens));
    cache.Keep(word, 10, std::vector<Token>{{i, 10, 12}, {i + 1, 12, 14}});
    ASSERT_TRUE(cache.Find(word, 5, &tokens));
    ASSERT_THAT(tokens, ElementsAre(Token{i, 5, 7}, Token{i + 1, 7, 9}));
  }
}

}  // namespace
}  // namespace ds::tokenizer
