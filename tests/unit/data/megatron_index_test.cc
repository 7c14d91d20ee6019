// Files as Megatron-LM's IndexedDatasetBuilder writes them: byte for byte its header, lengths,
// pointers and documents.

#include "runtime/plan/data/megatron_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/data/token_source.h"
#include "tests/places.h"
#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct IndexParts {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t dtype = 8;
  std::vector<std::int32_t> lengths = {3, 2, 4};
  std::vector<std::int64_t> pointers = {0, 6, 10};
  std::vector<std::int64_t> documents = {0, 1, 3};  // the second has two sequences
};

template <typename Number>
void Append(const Number& number, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string BytesOf(const IndexParts& parts) {
  std::string bytes = parts.magic;
  Append(parts.version, &bytes);
  Append(parts.dtype, &bytes);
  Append(static_cast<std::uint64_t>(parts.lengths.size()), &bytes);
  Append(static_cast<std::uint64_t>(parts.documents.size()), &bytes);
  for (const auto length : parts.lengths) Append(length, &bytes);
  for (const auto pointer : parts.pointers) Append(pointer, &bytes);
  for (const auto document : parts.documents) Append(document, &bytes);
  return bytes;
}

class MegatronIndexTest : public ::testing::Test {
 protected:
  std::string ErrorOf(const std::string& bytes, std::int64_t bin_bytes = 18) const {
    const auto index = MegatronIndex::Open(folder_.Write("a.idx", bytes), bin_bytes);
    return index.ok() ? "accepted" : index.status().message();
  }
  const ScratchFolder folder_;
};

TEST_F(MegatronIndexTest, ReadsWidthAndDocuments) {
  const auto index = MegatronIndex::Open(folder_.Write("a.idx", BytesOf({})), 18).value();
  EXPECT_EQ(index.token_bytes(), 2);
  EXPECT_EQ(index.documents(), 2);
  EXPECT_THAT(index.ReadEnds(0, 2).value(), ElementsAre(3, 9));
  EXPECT_THAT(index.ReadEnds(1, 1).value(), ElementsAre(9));
}

TEST_F(MegatronIndexTest, ReadsFilesOfMegatron) {
  const auto source = TokenSource::Open({DS_SOURCE_DIR "/tests/unit/data/goldens/megatron.bin"},
                                        TokenWidth::kUint32)
                          .value();
  std::vector<std::int64_t> tokens(9), numbers(9);
  ASSERT_TRUE(source.Read(0, tokens).ok());
  ASSERT_TRUE(source.ReadDocuments(0, numbers).ok());
  EXPECT_THAT(tokens, ElementsAre(5, 6, 7, 1, 2, 9, 8, 40000, 3));
  EXPECT_THAT(numbers, ElementsAre(0, 0, 0, 1, 1, 1, 1, 1, 1));
}

TEST_F(MegatronIndexTest, TokenFilesWithAnIndexHaveItsWidthAndDocuments) {
  const std::string first =
      folder_.WriteTokens<std::uint16_t>("a.bin", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  folder_.Write("a.idx", BytesOf({}));
  folder_.WriteTokens<std::uint16_t>("b.bin", {10, 11, 12, 13});
  folder_.Write("b.idx", BytesOf({.lengths = {4}, .pointers = {0}, .documents = {0, 1}}));
  // A folder of both, whose indices are no data; --token_dtype does not count.
  const auto source = TokenSource::Open({folder_.path()}, TokenWidth::kUint32).value();
  EXPECT_EQ(source.size(), 13);
  std::vector<std::int64_t> numbers(13);
  ASSERT_TRUE(source.ReadDocuments(0, numbers).ok());
  EXPECT_THAT(numbers, ElementsAre(0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2));
  std::vector<std::int64_t> tokens(2);
  ASSERT_TRUE(source.Read(9, tokens).ok());
  EXPECT_THAT(tokens, ElementsAre(10, 11));
  EXPECT_EQ(TokenSource::Open({folder_.path() + "/*.bin"}, TokenWidth::kUint16).value().size(), 13);

  folder_.WriteTokens<std::uint16_t>("c.bin", {1});
  EXPECT_THAT(TokenSource::Open({folder_.path()}, TokenWidth::kUint16).status().message(),
              HasSubstr("c.bin has no .idx next to it"));
}

TEST_F(MegatronIndexTest, ReadsTokensOfEveryWidth) {
  IndexParts parts{.dtype = 5, .lengths = {2}, .pointers = {0}, .documents = {0, 1}};
  const std::string path = folder_.WriteTokens<std::int64_t>("a.bin", {70000, 3});
  folder_.Write("a.idx", BytesOf(parts));
  std::vector<std::int64_t> tokens(2);
  ASSERT_TRUE(TokenSource::Open({path}, TokenWidth::kUint16).value().Read(0, tokens).ok());
  EXPECT_THAT(tokens, ElementsAre(70000, 3));
}

TEST_F(MegatronIndexTest, NamesDamagedParts) {
  EXPECT_EQ(ErrorOf(BytesOf({})), "accepted");
  EXPECT_THAT(ErrorOf("MM"), HasSubstr("a.idx: the file ends too early"));
  EXPECT_THAT(ErrorOf(BytesOf({.magic = std::string("TNTIDXX\0\0", 9)})),
              HasSubstr("does not begin as Megatron-LM's indices do"));
  EXPECT_THAT(ErrorOf(BytesOf({.version = 2})), HasSubstr("version 2"));
  EXPECT_THAT(ErrorOf(BytesOf({.dtype = 6})), HasSubstr("dtype 6 is none that token ids have"));
  const std::string full = BytesOf({});
  EXPECT_THAT(ErrorOf(full.substr(0, full.size() - 1)), HasSubstr("its counts need"));
  EXPECT_THAT(ErrorOf(full + std::string(3, '\0')), HasSubstr("multimodal"));
  EXPECT_THAT(ErrorOf(full, 20), HasSubstr("end at byte 18 of a .bin file that has 20"));
  EXPECT_THAT(ErrorOf(BytesOf({.lengths = {3, -2, 4}})), HasSubstr("sequence 1 has less than no"));
  EXPECT_THAT(ErrorOf(BytesOf({.pointers = {0, 8, 10}})),
              HasSubstr("sequence 1 begins at byte 8, and the one before it ends at 6"));
  EXPECT_THAT(ErrorOf(BytesOf({.documents = {0, 2, 1}})),
              HasSubstr("document 2 begins with sequence 1 of 3"));
  EXPECT_THAT(ErrorOf(BytesOf({.documents = {0, 1, 2}})), HasSubstr("the last document ends"));
}

}  // namespace
}  // namespace ds::data
