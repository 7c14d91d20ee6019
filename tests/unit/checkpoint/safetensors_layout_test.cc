#include "runtime/checkpoint_format/safetensors_layout.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/support/program.h"

namespace ds::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What is found in a file of these bytes.
StatusOr<SafetensorsLayout> Layout(const std::string& bytes) {
  const ds::testing::TemporaryFolder folder;
  const auto path = folder.path() / "model.safetensors";
  EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return ReadSafetensorsLayout(fd.get());
}

StatusOr<SafetensorsLayout> Layout(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  return Layout(std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
                std::string(data_bytes, '\1'));
}

std::string Error(const std::string& header, std::size_t data_bytes) {
  return Layout(header, data_bytes).status().message();
}

TEST(SafetensorsLayoutTest, HasNamesShapesAndPositions) {
  const std::string header =
      R"({"b":{"dtype":"F8_E5M2","shape":[2,3],"data_offsets":[4,10]},
          "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
          "none":{"dtype":"BF16","shape":[0,7],"data_offsets":[10,10]},
          "__metadata__":{"format":"pt"}})";
  const auto layout = Layout(header, 10);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  ASSERT_EQ(layout->size(), 3u);
  EXPECT_EQ(layout->at("a").Elements(), 1);
  EXPECT_EQ(layout->at("a").offset, 8 + header.size());
  EXPECT_EQ(layout->at("b").dtype, "F8_E5M2");
  EXPECT_THAT(layout->at("b").shape, ElementsAre(2, 3));
  EXPECT_EQ(layout->at("b").bytes, 6u);
  EXPECT_EQ(layout->at("none").Elements(), 0);
}

// A reader that looks at all earlier names behind each one meets the test's own time limit here.
TEST(SafetensorsLayoutTest, ReadsManyNames) {
  constexpr int kTensors = 150'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  const auto layout = Layout(header + "}", 0);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_EQ(layout->size(), std::size_t{kTensors});
}

TEST(SafetensorsLayoutTest, AnUnknownDtypeIsReadWithItsBytes) {
  const auto layout = Layout(R"({"a":{"dtype":"F4","shape":[16],"data_offsets":[0,8]},
                                 "b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                             12);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_EQ(layout->at("a").Elements(), 16);
  EXPECT_EQ(layout->at("b").bytes, 4u);
}

TEST(SafetensorsLayoutTest, RefusesInvalidFiles) {
  EXPECT_THAT(Layout("abc").status().message(), HasSubstr("not a safetensors file: 3 bytes long"));
  EXPECT_THAT(Layout(std::string(20, '\xff')).status().message(),
              HasSubstr("truncated, or not a safetensors file"));
}

struct HostileHeader {
  const char* header;
  std::size_t data_bytes;
  const char* message;
};

class HostileHeaderTest : public ::testing::TestWithParam<HostileHeader> {};

TEST_P(HostileHeaderTest, IsRefusedByName) {
  EXPECT_THAT(Error(GetParam().header, GetParam().data_bytes), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Headers, HostileHeaderTest,
    ::testing::Values(
        HostileHeader{"{", 0, "it is not JSON"}, HostileHeader{"[1]", 0, "not a JSON object"},
        HostileHeader{R"({"a":1})", 0, "tensor 'a': not a valid safetensors header"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
                      "tensor 'a'"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "tensor 'a'"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "backwards"},
        HostileHeader{
            R"({"a":{"dtype":"F4","shape":[4294967297,4294967295],"data_offsets":[0,4]}})", 4,
            "span 4 bytes"},
        HostileHeader{R"({"a":{"dtype":"F4","shape":[33],"data_offsets":[0,4]}})", 4,
                      "span 4 bytes, which does not match dtype and shape"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
                      "span 4 bytes, which does not match dtype and shape"},
        HostileHeader{
            R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
            "tensor 'a'"},
        HostileHeader{
            R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
            "tensor 'a'"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                          "b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                      6, "tensor 'b' begins at data byte 2, inside another one"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                          "b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                      12, "tensor 'b' begins at data byte 8, after a gap"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                          "a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                      8, "tensor 'a' is there twice"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5,
                      "1 bytes after the last tensor"},
        HostileHeader{R"({"a":{"dtype":"F32","shape":[4611686018427387903],
                          "data_offsets":[0,18446744073709551612]}})",
                      4, "tensor 'a'"}));

}  // namespace
}  // namespace ds::checkpoint
