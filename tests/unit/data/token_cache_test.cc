#include "runtime/plan/data/token_cache.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/data/loader.h"
#include "tests/support/scripted_file_system.h"
#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

// Words are tokens: a letter's id is its place in the alphabet, </s> is 27, <u> 28, <a> 29.
class TokenCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    nlohmann::json vocabulary{{"[UNK]", 0}, {"</s>", 27}, {"<u>", 28}, {"<a>", 29}};
    for (int i = 1; i <= 26; ++i) vocabulary[std::string(1, static_cast<char>('a' + i - 1))] = i;
    const nlohmann::json tokenizer{
        {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
        {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "[UNK]"}}}};
    folder_.Write("tokenizer.json", tokenizer.dump());
    folder_.Write("tokenizer_config.json",
                  nlohmann::json{{"eos_token", "</s>"}, {"chat_template", kTemplate}}.dump());
  }

  TokenRequest Request(std::vector<std::string> files) const {
    return {.files = std::move(files), .tokenizer = fs::path(root()).parent_path()};
  }
  std::string root() const { return fs::path(folder_.Write("x", "")).parent_path() / "cache"; }

  StatusOr<CachedTokens> Find(const TokenRequest& request) const {
    return FindOrTokenize(request, root(), [](double) {});
  }
  static Ids AllIds(const CachedTokens& cached) {
    Ids ids(static_cast<std::size_t>(cached.tokens));
    EXPECT_TRUE(TokenSource::Open(cached)->Read(0, ids).ok());
    return ids;
  }
  static Ids AllDocuments(const CachedTokens& cached) {
    Ids ids(static_cast<std::size_t>(cached.tokens));
    EXPECT_TRUE(TokenSource::Open(cached)->ReadDocuments(0, ids).ok());
    return ids;
  }
  static Ids ReadLossMask(const CachedTokens& cached) {
    Ids ids(static_cast<std::size_t>(cached.tokens));
    EXPECT_TRUE(TokenSource::Open(cached)->ReadLossMask(0, ids).ok());
    return ids;
  }

  static constexpr char kTemplate[] =
      "{% for m in messages %}{{ '<u> ' if m.role == 'user' else '<a> ' }}{{ m.content }} </s> "
      "{% endfor %}{{ '<a> ' if add_generation_prompt }}";
  ScratchFolder folder_;
};

TEST_F(TokenCacheTest, TextsAreDocumentsThatEnd) {
  const auto cached =
      Find(Request({folder_.Write("1.txt", "a b"), folder_.Write("2.jsonl",
                                                                 "{\"text\": \"c\"}\n\n"
                                                                 "{\"text\": \"d e\"}\n")}));
  ASSERT_TRUE(cached.ok()) << cached.status().message();
  EXPECT_EQ(cached->documents, 3);
  EXPECT_THAT(AllIds(*cached), ElementsAre(1, 2, 27, 3, 27, 4, 5, 27));
  EXPECT_THAT(AllDocuments(*cached), ElementsAre(0, 0, 0, 1, 1, 2, 2, 2));
  EXPECT_TRUE(cached->all_in_loss);
}

TEST_F(TokenCacheTest, PromptsDoNotContributeToTheLoss) {
  const auto cached = Find(Request({folder_.Write(
      "1.jsonl",
      "{\"text\": \"z\"}\n{\"prompt\": \"a b \", \"completion\": \"c d\"}\n"
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"},)"
      R"( {"role": "user", "content": "d"}, {"role": "assistant", "content": "e"}]})")}));
  ASSERT_TRUE(cached.ok()) << cached.status().message();
  EXPECT_THAT(AllIds(*cached), ElementsAre(26, 27, 1, 2, 3, 4, 27,  //
                                           28, 1, 27, 29, 2, 3, 27, 28, 4, 27, 29, 5, 27));
  EXPECT_THAT(ReadLossMask(*cached), ElementsAre(1, 1, 0, 0, 1, 1, 1,  //
                                                 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1));
}

TEST_F(TokenCacheTest, TrainsOnTheChosenAnswerOfPreferences) {
  const auto cached = Find(Request({folder_.Write(
      "1.jsonl",
      "{\"prompt\": \"a b \", \"chosen\": \"c\", \"rejected\": \"d\"}\n"
      "{\"chosen\": \"a b c\", \"rejected\": \"a b d\"}\n"
      R"({"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
      R"( {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}],)"
      R"( "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
      R"( {"role": "user", "content": "c"}, {"role": "assistant", "content": "e"}]})"
      "\n"
      R"({"prompt": [{"role": "user", "content": "a"}],)"
      R"( "chosen": [{"role": "assistant", "content": "b"}],)"
      R"( "rejected": [{"role": "assistant", "content": "c"}]})")}));
  ASSERT_TRUE(cached.ok()) << cached.status().message();
  EXPECT_THAT(AllIds(*cached), ElementsAre(1, 2, 3, 27, 1, 2, 3, 27,                    //
                                           28, 1, 27, 29, 2, 27, 28, 3, 27, 29, 4, 27,  //
                                           28, 1, 27, 29, 2, 27));
  EXPECT_THAT(ReadLossMask(*cached), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1,              //
                                                 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1,  //
                                                 0, 0, 0, 0, 1, 1));
  const auto mixed = Find(Request({folder_.Write(
      "2.jsonl", "{\"text\": \"a\"}\n{\"chosen\": \"a\", \"rejected\": [{\"role\": 1}]}\n")}));
  EXPECT_THAT(mixed.status().message(), HasSubstr("2.jsonl:2: \"chosen\", \"rejected\" and"));
}

TEST_F(TokenCacheTest, TheEndTokenIsInOneOfSeveralFiles) {
  const TokenRequest request = Request({folder_.Write("1.jsonl", R"({"text": "a b"})")});
  folder_.Write("tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(1, 2)) << "nothing says it";
  folder_.Write("config.json", R"({"eos_token_id": [26, 27]})");  // as of GPT-2, in one more form
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(1, 2, 26));
  folder_.Write("config.json", R"({"eos_token_id": 4000000000})");
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(1, 2)) << "no id of the tokenizer";
  folder_.Write("special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(1, 2, 27));
  folder_.Write("tokenizer_config.json", R"({"eos_token": "<a>"})");
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(1, 2, 27)) << "the map goes first";
  folder_.Write("tokenizer_config.json", R"({"eos_token": "<a>", "added_tokens_decoder": {}})");
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(1, 2, 29)) << "but is not read then";
}

TEST_F(TokenCacheTest, RefusesDataWithoutTrainedTokens) {
  // Another name for the assistant, a prompt alone, and a document of one token.
  for (const char* line :
       {R"({"messages": [{"role": "user", "content": "a"}, )"
        R"({"role": "model", "content": "b c"}]})",
        R"({"messages": [{"role": "user", "content": "a"}]})", R"({"text": "</s>"})"}) {
    const auto cached = Find(Request({folder_.Write("1.jsonl", line)}));
    ASSERT_FALSE(cached.ok()) << line;
    EXPECT_THAT(cached.status().message(),
                HasSubstr("the data contains no tokens that contribute"));
  }
  const std::string one = R"({"messages": [{"role": "assistant", "content": "b"}]})";
  const std::string none = R"({"messages": [{"role": "Assistant", "content": "b"}]})";
  const auto both = Find(Request({folder_.Write("1.jsonl", one + "\n" + none + "\n")}));
  EXPECT_EQ(both->left_out.without_loss, 1);
  EXPECT_THAT(both->left_out.first_without_loss, HasSubstr("1.jsonl:2"));
}

TEST_F(TokenCacheTest, AnyFieldMayBeTheText) {
  TokenRequest request = Request({folder_.Write("1.jsonl", "{\"body\": \"a\", \"text\": \"b\"}")});
  request.documents.rows.text_field = "body";
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(1, 27));
}

TEST_F(TokenCacheTest, RowsThatAreLeftOutAreCounted) {
  TokenRequest request = Request({folder_.Write(
      "1.jsonl",
      "{\"prompt\": \"a \", \"completion\": \"b c d\", \"label\": true}\n"
      "{\"prompt\": \"a \", \"completion\": \"e\", \"label\": false}\n"
      "{\"prompt\": \"a b c \", \"completion\": \"d\"}\n{\"text\": \"a\", \"label\": false}\n")});
  request.documents.max_length = 3;
  const CachedTokens cached = *Find(request);
  EXPECT_THAT(AllIds(cached), ElementsAre(1, 2, 3, 1, 27));
  EXPECT_THAT(ReadLossMask(cached), ElementsAre(0, 1, 1, 1, 1));
  EXPECT_EQ(cached.left_out.rejected, 1);
  EXPECT_EQ(cached.left_out.truncated_empty, 1);
  EXPECT_EQ(Find(request)->left_out.rejected, 1) << "from the cache";
  request.documents = {.max_length = 4, .keeps_end = true};
  EXPECT_FALSE(Find(request)->was_there) << "other choices";
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(2, 3, 4, 27, 2, 3, 4, 27, 1, 27));
  folder_.Write("1.jsonl", "{\"prompt\": \"a\", \"completion\": \"e\", \"label\": false}\n");
  EXPECT_THAT(Find(request).status().message(),
              HasSubstr("the data contains no tokens that contribute"));
  EXPECT_THAT(Find(request).status().message(), HasSubstr("1 rows have a \"label\""));
}

TEST_F(TokenCacheTest, DamagedLinesAreNamedOrCounted) {
  TokenRequest request = Request({folder_.Write(
      "bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \n{\"other\": 1}\n{\"text\": \"b\"}\n")});
  const auto stopped = Find(request);
  ASSERT_FALSE(stopped.ok());
  EXPECT_THAT(stopped.status().message(), HasSubstr("bad.jsonl:2: the row is no JSON: column "));
  EXPECT_FALSE(fs::exists(root() + "/tokens.bin"));
  request.skip_bad_data = true;
  const auto skipped = Find(request);
  ASSERT_TRUE(skipped.ok()) << skipped.status().message();
  EXPECT_EQ(skipped->left_out.skipped, 2);
  EXPECT_THAT(skipped->left_out.first_skipped, HasSubstr("bad.jsonl:2: "));
  EXPECT_THAT(AllIds(*skipped), ElementsAre(1, 27, 2, 27));
}

TEST_F(TokenCacheTest, NamesOrCountsInvalidUnicode) {
  TokenRequest request = Request({folder_.Write(
      "bad.jsonl", "{\"text\": \"a\", \"x\": NaN}\n{\"text\": \"\\ud800\"}\n{\"text\": \"b\"}\n")});
  EXPECT_THAT(Find(request).status().message(),
              HasSubstr("bad.jsonl:2: column 11: the escape \\ud800"));
  request.skip_bad_data = true;
  const auto skipped = Find(request);
  ASSERT_TRUE(skipped.ok()) << skipped.status().message();
  EXPECT_EQ(skipped->left_out.skipped, 1);
  EXPECT_THAT(AllIds(*skipped), ElementsAre(1, 27, 2, 27));
}

TEST_F(TokenCacheTest, RowsOfEveryFormatAreDocuments) {
  TokenRequest request = Request({folder_.Write("a.json", "{\"rows\": [\"a\", {\"text\": \"b\"}]}"),
                                  folder_.Write("b.tsv", "n\ttext\n1\ta\n")});
  request.data_field = "rows";
  const auto cached = Find(request);
  ASSERT_TRUE(cached.ok()) << cached.status().message();
  EXPECT_THAT(AllIds(*cached), ElementsAre(1, 27, 2, 27, 1, 27));
}

TEST_F(TokenCacheTest, TokenizesOnceAndAgainAfterChanges) {
  const std::string file = folder_.Write("1.txt", "a b");
  const TokenRequest request = Request({file});
  EXPECT_FALSE(Find(request)->was_there);
  const CachedTokens second = *Find(request);
  EXPECT_TRUE(second.was_there);
  fs::resize_file(second.ids_file(), 2);  // damaged
  EXPECT_FALSE(Find(request)->was_there);
  folder_.Write("1.txt", "a b c");
  EXPECT_FALSE(Find(request)->was_there);
  EXPECT_THAT(AllIds(*Find(request)), ElementsAre(1, 2, 3, 27));
}

// File systems take any bytes, JSON only UTF-8.
TEST_F(TokenCacheTest, FilesMayHaveNamesInOldEncodings) {
  const TokenRequest request = Request({folder_.Write("caf\xe9.txt", "a b")});
  ASSERT_TRUE(Find(request).ok());
  EXPECT_TRUE(Find(request)->was_there);
  folder_.Write("caf\xe9.txt", "a b c");
  EXPECT_FALSE(Find(request)->was_there);
}

TEST_F(TokenCacheTest, OneOfManyWaitersTokenizes) {
  const TokenRequest request = Request({folder_.Write("1.txt", "a b c d")});
  std::atomic<int> cut = 0;
  {
    std::vector<std::jthread> ranks;
    for (int i = 0; i < 8; ++i) {
      ranks.emplace_back([&] {
        const auto cached = FindOrTokenize(request, root(), [](double) {});
        ASSERT_TRUE(cached.ok()) << cached.status().message();
        if (!cached->was_there) ++cut;
      });
    }
  }
  EXPECT_EQ(cut, 1);
}

TEST_F(TokenCacheTest, WithoutLocksAllUseTheFirstEntry) {
  const TokenRequest request = Request({folder_.Write("1.txt", "a b c d")});
  ds::testing::ScriptedFileSystem system([](const ds::testing::FileCall& call) {
    return call.kind == ds::testing::FileCall::Kind::kLock ? ENOSYS : ds::testing::kAskTheSystem;
  });
  const auto find = [&] {
    return FindOrTokenize(
        request, root(), [](double) {}, system);
  };
  {
    std::vector<std::jthread> ranks;
    for (int i = 0; i < 4; ++i) {
      ranks.emplace_back([&] {
        const auto cached = find();
        ASSERT_TRUE(cached.ok()) << cached.status().message();
      });
    }
  }
  EXPECT_GE(system.calls(), 1);
  const CachedTokens cached = *find();
  EXPECT_THAT(AllIds(cached), ElementsAre(1, 2, 3, 4, 27));
  fs::resize_file(cached.ids_file(), 2);  // damaged
  EXPECT_THAT(AllIds(*find()), ElementsAre(1, 2, 3, 4, 27));
  for (const auto& entry : fs::directory_iterator(root())) {
    EXPECT_THAT(entry.path().string(),
                ::testing::AnyOf(cached.folder.string(), cached.folder.string() + ".lock"));
  }
}

TEST_F(TokenCacheTest, APlaceThatCannotBeUsedIsNamedWithTheFlagForAnother) {
  const TokenRequest request = Request({folder_.Write("1.txt", "a b")});
  const auto in_file = FindOrTokenize(request, folder_.Write("file", "") + "/x", [](double) {});
  ASSERT_FALSE(in_file.ok());
  EXPECT_THAT(in_file.status().message(), HasSubstr("--data_cache names another place"));
  ds::testing::ScriptedFileSystem system([](const ds::testing::FileCall&) { return EIO; });
  const auto failing = FindOrTokenize(
      request, root(), [](double) {}, system);
  ASSERT_FALSE(failing.ok());
  EXPECT_THAT(failing.status().message(), HasSubstr(".lock: "));
}

TEST_F(TokenCacheTest, AFullDiskIsNamedWithTheFlagForAnother) {
  using Kind = ds::testing::FileCall::Kind;
  const TokenRequest request = Request({folder_.Write("1.txt", "a b")});
  for (const Kind failing : {Kind::kOpen, Kind::kWrite, Kind::kSync}) {
    ds::testing::ScriptedFileSystem full([failing](const ds::testing::FileCall& call) {
      return call.kind == failing ? ENOSPC : ds::testing::kAskTheSystem;
    });
    const auto cut = FindOrTokenize(
        request, root(), [](double) {}, full);
    ASSERT_FALSE(cut.ok()) << static_cast<int>(failing);
    EXPECT_THAT(cut.status().message(), HasSubstr("No space left on device; --data_cache names "));
    for (const auto& entry : fs::directory_iterator(root())) {
      EXPECT_EQ(entry.path().extension(), ".lock") << "what is half written is gone";
    }
  }
  EXPECT_THAT(AllIds(*FindOrTokenize(request, root(), [](double) {})), ElementsAre(1, 2, 27));
}

// 5000 documents are more than a block of the index holds.
TEST_F(TokenCacheTest, SamplesKnowTheirDocumentsAtAnyWorldSize) {
  std::string lines;
  for (int i = 0; i < 5000; ++i) {
    lines +=
        i % 3 == 0 ? "{\"text\": \"a b c\"}\n" : "{\"prompt\": \"d e \", \"completion\": \"f\"}\n";
  }
  const CachedTokens cached = *Find(Request({folder_.Write("1.jsonl", lines)}));
  const auto rows = [&](int world, std::int64_t micro_batch) {
    std::vector<std::unique_ptr<Loader>> ranks;
    for (int rank = 0; rank < world; ++rank) {
      const LoaderOptions options{.micro_batch = micro_batch,
                                  .seq_len = 6,
                                  .vocab_size = 30,
                                  .reader = {.index = rank, .count = world},
                                  .order = {.shuffle = true, .seed = 7}};
      ranks.push_back(*Loader::Create(*TokenSource::Open(cached), options));
    }
    std::vector<std::array<at::Tensor, 3>> all;
    while (all.size() < 4000) {  // more than a pass
      for (const auto& rank : ranks) {
        const TokenBatch batch = *rank->Next();
        for (std::int64_t row = 0; row < micro_batch; ++row) {
          all.push_back({batch.inputs[row], batch.labels[row], batch.documents[row]});
        }
      }
    }
    return all;
  };
  const auto expected = rows(1, 4);
  const auto other = rows(2, 2);
  for (std::size_t i = 0; i < 4000; ++i) {
    const auto* ids = expected[i][0].data_ptr<std::int64_t>();
    const auto* labels = expected[i][1].data_ptr<std::int64_t>();
    const auto* documents = expected[i][2].data_ptr<std::int64_t>();
    for (int part = 0; part < 3; ++part) EXPECT_TRUE(at::equal(expected[i][part], other[i][part]));
    for (int at = 0; at < 6; ++at) {
      // What ends a document is followed by one that is not learnt, and what a prompt goes on with.
      const bool in_loss = ids[at] != 27 && labels[at] != kIgnoredLabel;
      if (ids[at] == 27 || ids[at] == 4) {
        EXPECT_EQ(labels[at], kIgnoredLabel);
      }
      if (in_loss && at < 5) {
        EXPECT_EQ(labels[at], ids[at + 1]);
      }
      if (at > 0) {
        EXPECT_EQ(documents[at] - documents[at - 1], ids[at - 1] == 27 ? 1 : 0);
      }
    }
    EXPECT_EQ(documents[0], 0);
  }
}

// Five documents: a b </s>, c </s>, d e f </s>, g </s>, h i </s>.
TEST_F(TokenCacheTest, FullDocumentsAreSamplesWithPadding) {
  const CachedTokens cached =
      *Find(Request({folder_.Write("1.jsonl",
                                   "{\"text\": \"a b\"}\n{\"text\": \"c\"}\n{\"text\": \"d e f\"}\n"
                                   "{\"text\": \"g\"}\n{\"text\": \"h i\"}\n")}));
  const auto read = [&](Packing packing, std::int64_t micro_batch) {
    const LoaderOptions options{.micro_batch = micro_batch,
                                .seq_len = 6,
                                .vocab_size = 30,
                                .packing = packing,
                                .order = {.shuffle = false}};
    return *(*Loader::Create(*TokenSource::Open(cached), options))->Next();
  };
  const auto row = [](const at::Tensor& rows, std::int64_t index) {
    const auto* const first = rows.const_data_ptr<std::int64_t>() + index * 6;
    return Ids(first, first + 6);
  };
  const TokenBatch full = read(Packing::kDocuments, 3);
  EXPECT_THAT(row(full.inputs, 0), ElementsAre(1, 2, 27, 3, 27, 0));
  EXPECT_THAT(row(full.labels, 0), ElementsAre(2, 27, -100, 27, -100, -100));
  EXPECT_THAT(row(full.documents, 0), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(row(full.labels, 1), ElementsAre(5, 6, 27, -100, 27, -100));
  EXPECT_THAT(row(full.inputs, 2), ElementsAre(8, 9, 27, 0, 0, 0));
  EXPECT_THAT(row(full.labels, 2), ElementsAre(9, 27, -100, -100, -100, -100));
  EXPECT_EQ(full.longest, 4) << "d e f and its end; padding does not count";
  EXPECT_THAT(full.lengths, ElementsAre(5, 6, 3));
  const TokenBatch each = read(Packing::kNone, 5);
  EXPECT_EQ(each.longest, 4);
  EXPECT_EQ(read(Packing::kStream, 1).longest, 3);
  EXPECT_THAT(row(each.inputs, 3), ElementsAre(7, 27, 0, 0, 0, 0));
  EXPECT_THAT(row(each.labels, 3), ElementsAre(27, -100, -100, -100, -100, -100));
  EXPECT_FALSE(each.documents.defined()) << "what is behind a document needs no mask";
}

}  // namespace
}  // namespace ds::data
