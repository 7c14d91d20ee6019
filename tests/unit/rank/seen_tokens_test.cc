#include "runtime/rank/seen_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::rank {
namespace {

using ::testing::HasSubstr;

SeenTokens Dropping() {
  return SeenTokens({.random_ltd = config::RandomLtdConfig{.total_layer_num = 2, .layers = {1}}});
}

std::string Refusal(const models::DecoderSpec& spec, std::int64_t seq_len) {
  return Dropping().Prepare(BlockList(), spec, seq_len).message();
}

TEST(SeenTokens, NoTokensAreDroppedWhereAttentionCountsThoseBetween) {
  models::DecoderSpec spec;
  spec.positions = models::Positions::kAlibi;
  EXPECT_THAT(Refusal(spec, 32), HasSubstr("ALiBi"));
  spec.positions = models::Positions::kRotary;
  spec.window = 16;
  EXPECT_THAT(Refusal(spec, 32), HasSubstr("a sliding window"));
  EXPECT_THAT(Refusal(spec, 16), HasSubstr("total_layer_num"));  // a window over all of it
  EXPECT_TRUE(SeenTokens().Prepare(BlockList(), spec, 32).ok());
}

}  // namespace
}  // namespace ds::rank
