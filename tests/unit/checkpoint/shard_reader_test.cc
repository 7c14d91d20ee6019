#include "runtime/checkpoint_format/shard_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/checkpoint_format/crc32c.h"
#include "runtime/checkpoint_format/shard_file_writer.h"
#include "runtime/checkpoint_format/verify.h"
#include "tests/support/program.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::checkpoint {
namespace {

using ds::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kLength = 2 * kChunkBytes + kChunkBytes / 2 + 3;

// A shard of two chunks and a half, behind another one.
class ShardReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(5);
    bytes_.resize(kLength);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    auto writer = ShardFileWriter::Create(folder_.path() / "rank-00000.bin", FileSystem::System());
    ASSERT_TRUE(writer.ok());
    writer->BeginShard();
    ASSERT_TRUE(writer->Append(std::span(bytes_).first(77)).ok());
    writer->EndShard({Boxes{}, 0, 77});
    writer->BeginShard();
    // In pieces that end nowhere near a chunk's end.
    for (std::span<const std::byte> rest(bytes_); !rest.empty();) {
      const auto piece = rest.first(std::min<std::size_t>(rest.size(), 1'234'567));
      ASSERT_TRUE(writer->Append(piece).ok());
      rest = rest.subspan(piece.size());
    }
    shard_ = writer->EndShard({Boxes{}, 0, static_cast<std::int64_t>(kLength)});
    ASSERT_TRUE(writer->Finish().ok());
  }

  // The bytes [at, at + count), read by themselves.
  StatusOr<std::vector<std::byte>> Read(std::uint64_t at, std::uint64_t count) {
    std::vector<std::byte> into(count);
    ShardReader reader = ShardReader::Open(folder_.path(), shard_).value();
    DS_RETURN_IF_ERROR(reader.Read(at, into));
    return into;
  }

  void Damage(std::uint64_t at) { FlipBit(folder_.path() / shard_.file, shard_.offset + at); }

  TemporaryFolder folder_;
  std::vector<std::byte> bytes_;
  StoredShard shard_;
};

TEST_F(ShardReaderTest, EveryChunkHasAChecksum) {
  ASSERT_THAT(shard_.crc32c, SizeIs(3));
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto chunk = std::span(bytes_)
                           .subspan(i * kChunkBytes)
                           .first(std::min(kChunkBytes, kLength - i * kChunkBytes));
    EXPECT_EQ(shard_.crc32c[i], ExtendCrc32c(0, chunk)) << i;
  }
  EXPECT_THAT(VerifyShards(folder_.path() / shard_.file, {{"weight", shard_}}).value(), IsEmpty());
}

TEST_F(ShardReaderTest, PartsMatchTheWrittenData) {
  std::mt19937_64 random(7);
  ShardReader reader = ShardReader::Open(folder_.path(), shard_).value();
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t at = random() % kLength;
    std::vector<std::byte> into(random() % (kLength - at));
    ASSERT_TRUE(reader.Read(at, into).ok());
    ASSERT_TRUE(std::equal(into.begin(), into.end(), bytes_.begin() + static_cast<long>(at)));
  }
  EXPECT_EQ(Read(0, kLength).value(), bytes_);
}

TEST_F(ShardReaderTest, APartOfADamagedChunkIsRefusedAndOthersAreNot) {
  Damage(kChunkBytes + 100);
  for (const std::uint64_t at : {kChunkBytes, kChunkBytes + 100, 2 * kChunkBytes - 1}) {
    const Status status = Read(at, 1).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("rank-00000.bin has a wrong checksum"));
  }
  EXPECT_FALSE(Read(0, kLength).ok());
  EXPECT_TRUE(Read(0, kChunkBytes).ok());
  EXPECT_TRUE(Read(2 * kChunkBytes, kLength - 2 * kChunkBytes).ok());
  EXPECT_THAT(VerifyShards(folder_.path() / shard_.file, {{"weight", shard_}}).value(), SizeIs(1));
}

TEST_F(ShardReaderTest, VerifiesTheFullLongShardOfFormatOne) {
  shard_.crc32c = {ExtendCrc32c(0, bytes_)};
  EXPECT_EQ(Read(0, kLength).value(), bytes_);
  EXPECT_THAT(VerifyShards(folder_.path() / shard_.file, {{"weight", shard_}}).value(), IsEmpty());
  Damage(5);
  EXPECT_FALSE(Read(0, kLength).ok());
  EXPECT_TRUE(Read(1, 100).ok()) << "there is nothing to verify a part by";
}

TEST_F(ShardReaderTest, AFileThatIsCutIsDataLoss) {
  std::filesystem::resize_file(folder_.path() / shard_.file, shard_.offset + kChunkBytes + 5);
  EXPECT_TRUE(Read(10, 10).ok());
  EXPECT_THAT(Read(kChunkBytes, 1).status().message(), HasSubstr("is truncated at byte"));
}

}  // namespace
}  // namespace ds::checkpoint
