#include "runtime/tokenizer/file/wire_message.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <string_view>

namespace ds::tokenizer {
namespace {

using namespace std::string_view_literals;

// The next field; fails the test when there is none.
WireField TakeField(WireMessage* message) {
  const auto field = message->Next();
  EXPECT_TRUE(field.ok() && field->has_value());
  return field.ok() && field->has_value() ? **field : WireField();
}

// As protobuf's encoding guide writes them: a tag is number << 3 | kind.
TEST(WireMessageTest, ReadsFieldsOfEveryKindInTheirOrder) {
  WireMessage message(
      "\x08\x96\x01"                          // 1: the varint 150
      "\x12\x02hi"                            // 2: two bytes
      "\x1d\x00\x00\xc0\x3f"                  // 3: the float 1.5
      "\x21\x01\x00\x00\x00\x00\x00\x00\x80"  // 4: 64 bits
      "\xc2\x02\x00"sv);                      // 40: no bytes
  WireField field = TakeField(&message);
  EXPECT_EQ(field.number, 1U);
  EXPECT_EQ(field.varint, 150U);
  field = TakeField(&message);
  EXPECT_EQ(field.number, 2U);
  EXPECT_EQ(field.bytes, "hi");
  field = TakeField(&message);
  EXPECT_EQ(field.number, 3U);
  EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(field.varint)), 1.5F);
  field = TakeField(&message);
  EXPECT_EQ(field.number, 4U);
  EXPECT_EQ(field.varint, 0x8000'0000'0000'0001U);
  field = TakeField(&message);
  EXPECT_EQ(field.number, 40U);
  EXPECT_EQ(field.bytes, "");
  const auto end = message.Next();
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->has_value());
}

TEST(WireMessageTest, ReadsTheLargestNumber) {
  WireMessage message("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv);
  EXPECT_EQ(TakeField(&message).varint, ~std::uint64_t{0});
}

TEST(WireMessageTest, RefusesDamagedMessages) {
  for (const std::string_view bytes : {
           "\x80"sv,                                              // a tag without its end
           "\x08"sv,                                              // a number that is not there
           "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv,  // one of more than 64 bits
           "\x12"sv,                                              // a length that is not there
           "\x12\x03hi"sv,                                        // bytes beyond the end
           "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv,      // the same by far
           "\x1d\x00\x00\xc0"sv,                                  // half of a float
           "\x21\x01\x00"sv,                                      // part of 64 bits
           "\x0b"sv,  // a group, which nobody writes any more
           "\x0f"sv,  // a kind that there is not
       }) {
    const auto field = WireMessage(bytes).Next();
    EXPECT_EQ(field.status().code(), StatusCode::kInvalidArgument) << bytes.size() << " bytes";
  }
}

}  // namespace
}  // namespace ds::tokenizer
