#include "runtime/checkpoint_format/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace ds::checkpoint {
namespace {

std::vector<std::byte> RandomBytes(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// The definition, bit by bit.
std::uint32_t ByDefinition(std::span<const std::byte> bytes) {
  std::uint32_t state = 0xFFFFFFFF;
  for (const std::byte byte : bytes) {
    state ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? 0x82F63B78 : 0);
  }
  return ~state;
}

TEST(Crc32c, MatchesTheVectorsOfRfc3720) {
  EXPECT_EQ(Crc32c(""), 0U);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AA);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43);
  std::string ascending;
  for (char byte = 0; byte < 32; ++byte) ascending.push_back(byte);
  EXPECT_EQ(Crc32c(ascending), 0x46DD794EU);
}

// Lengths around the three interleaved streams, at odd addresses.
TEST(Crc32c, InstructionAndTablesEqualTheDefinition) {
  const std::vector<std::byte> bytes = RandomBytes(20000);
  for (const std::size_t start : {0, 1, 5}) {
    for (const std::size_t count : {0, 1, 7, 8, 9, 63, 2048, 6143, 6144, 6145, 12288, 19000}) {
      const auto part = std::span(bytes).subspan(start, count);
      const std::uint32_t expected = ByDefinition(part);
      EXPECT_EQ(ExtendCrc32c(0, part), expected) << start << " " << count;
      EXPECT_EQ(ExtendCrc32cPortably(0, part), expected) << start << " " << count;
    }
  }
}

TEST(Crc32c, ExtendsPieceByPiece) {
  const std::vector<std::byte> bytes = RandomBytes(15000);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t cut : {0, 1, 4096, 6144, 14999, 15000}) {
    EXPECT_EQ(ExtendCrc32c(ExtendCrc32c(0, all.first(cut)), all.subspan(cut)), ExtendCrc32c(0, all))
        << cut;
  }
}

}  // namespace
}  // namespace ds::checkpoint
