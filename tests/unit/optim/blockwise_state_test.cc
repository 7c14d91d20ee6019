#include "runtime/optim/kernels/blockwise_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/config/model_state.h"
#include "tests/places.h"

namespace ds::optim {
namespace {

using Json = nlohmann::json;
using config::kStateBlock;

const Json& BlockwiseGoldens() {
  static const Json goldens = Json::parse(
      ReadFile(std::filesystem::path(DS_SOURCE_DIR) / "tests/unit/optim/goldens/blockwise.json")
          .value());
  return goldens;
}

StateMap MapNamed(const std::string& name) {
  return name == "signed" ? StateMap::kSigned : StateMap::kUnsigned;
}

struct Quantized {
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales, back;
};

Quantized Quantize(const std::vector<float>& values, StateMap map) {
  Quantized out;
  const auto count = static_cast<std::int64_t>(values.size());
  out.bytes.resize(values.size());
  out.scales.resize(static_cast<std::size_t>((count + kStateBlock - 1) / kStateBlock));
  out.back.resize(values.size());
  QuantizeState(values.data(), count, map, out.bytes.data(), out.scales.data());
  DequantizeState(out.bytes.data(), out.scales.data(), count, map, out.back.data());
  return out;
}

TEST(BlockwiseStateTest, MapsAreThoseOfBitsandbytes) {
  for (const auto& [name, numbers] : BlockwiseGoldens()["maps"].items()) {
    const auto expected = numbers.get<std::vector<float>>();
    const auto& ours = NumbersOf(MapNamed(name));
    ASSERT_EQ(expected.size(), ours.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_NEAR(ours[i], expected[i], 1e-6F * std::abs(expected[i]) + 1e-12F) << name << " " << i;
    }
  }
}

// The goldens are of bitsandbytes' kernel for the host. Judged by its bytes it finds a value to
// about one of 2^16 steps of [-1, 1] only: below a hundredth of the scale it may miss the nearest
// number, by a step at most. No value is nearer to bitsandbytes' number than to ours.
TEST(BlockwiseStateTest, BytesAndScalesAreThoseOfBitsandbytes) {
  constexpr float kStep = 2.0F / 65535.0F;
  for (const Json& golden : BlockwiseGoldens()["cases"]) {
    const auto values = golden["values"].get<std::vector<float>>();
    const auto back = golden["back"].get<std::vector<float>>();
    const auto bytes = golden["bytes"].get<std::vector<int>>();
    const Quantized ours = Quantize(values, MapNamed(golden["name"]));
    ASSERT_EQ(ours.scales, golden["scales"].get<std::vector<float>>());
    for (std::size_t i = 0; i < values.size(); ++i) {
      SCOPED_TRACE(golden["name"].get<std::string>() + " " + std::to_string(i));
      const float scale = ours.scales[i / static_cast<std::size_t>(kStateBlock)];
      const float error = std::abs(ours.back[i] - values[i]), other = std::abs(back[i] - values[i]);
      const float rounding = 3e-7F * std::abs(back[i]);  // of the maps, and of what comes back
      EXPECT_LE(error, other + rounding);
      EXPECT_LE(other, error + kStep * scale + rounding);
      if (std::abs(values[i]) >= 0.01F * scale) EXPECT_EQ(ours.bytes[i], bytes[i]);
    }
  }
}

// The bounds of the header: half of the largest distance of neighbours, by decade.
TEST(BlockwiseStateTest, ErrorsStayInTheirBounds) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> exponent(-6.9F, 0.0F);
  for (const StateMap map : {StateMap::kSigned, StateMap::kUnsigned}) {
    std::vector<float> values(64 * kStateBlock);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::pow(10.0F, exponent(random));
      if (map == StateMap::kSigned && i % 2 == 1) values[i] = -values[i];
      if (i % kStateBlock == 0) values[i] = 1.0F;
    }
    const Quantized out = Quantize(values, map);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float size = std::abs(values[i]);
      const float error = std::abs(out.back[i] - values[i]);
      const float bound = map == StateMap::kSigned ? 0.0071F : 0.0036F;
      EXPECT_LE(error, bound) << values[i];
      if (size < 0.09F) {
        EXPECT_LE(error, 0.2F * bound) << values[i];
      }
      if (values[i] == 1.0F) {
        EXPECT_EQ(error, 0.0F);
      }
    }
  }
}

TEST(BlockwiseStateTest, ZerosStayZeros) {
  const Quantized out = Quantize(std::vector<float>(300, 0.0F), StateMap::kSigned);
  EXPECT_EQ(out.back, std::vector<float>(300, 0.0F));
}

// Every number is its own nearest one.
TEST(BlockwiseStateTest, NumbersOfAMapComeBack) {
  for (const StateMap map : {StateMap::kSigned, StateMap::kUnsigned}) {
    const auto& numbers = NumbersOf(map);
    const Quantized out = Quantize({numbers.begin(), numbers.end()}, map);
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(out.bytes[i], i);
  }
}

}  // namespace
}  // namespace ds::optim
