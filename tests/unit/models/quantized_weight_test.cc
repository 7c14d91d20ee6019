// The bytes that stand for weights are bitsandbytes' (goldens), and layers compute with what they
// give back.

#include "runtime/models/kernels/quantized_weight.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/models/layers/lora.h"
#include "runtime/models/weights/derived_values.h"
#include "tests/places.h"
#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

using ::testing::HasSubstr;

// As make_quantized_goldens.py makes them.
at::Tensor MakeWeight(std::int64_t rows, std::int64_t columns) {
  const at::Tensor i = at::arange(rows * columns, at::kLong);
  const at::Tensor full = ((i * 7919).remainder(2003) - 1001) * (i.remainder(13) + 1);
  return (full.to(at::kFloat) / 131072.0).view({rows, columns});
}

std::string Digits(const std::uint8_t* bytes, std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 0xF]};
  }
  return text;
}

TEST(QuantizedWeight, HasTheBytesOfBitsandbytes) {
  const auto goldens =
      nlohmann::json::parse(*ReadFile(DS_SOURCE_DIR "/tests/unit/models/goldens/quantized.json"));
  for (const nlohmann::json& golden : goldens["cases"]) {
    SCOPED_TRACE(golden["format"].dump() + golden["rows"].dump());
    const QuantizedLayout layout{.format = ParseBaseFormat(std::string(golden["format"])).value(),
                                 .rows = golden["rows"],
                                 .columns = golden["columns"]};
    const at::Tensor bytes = QuantizeWeight(MakeWeight(layout.rows, layout.columns), layout);
    ASSERT_EQ(bytes.numel(), layout.bytes());
    const auto* data = bytes.const_data_ptr<std::uint8_t>();
    EXPECT_EQ(Digits(data, layout.code_bytes()), golden["codes"].get<std::string>());
    std::int64_t scales = layout.code_bytes();
    if (golden.contains("scale_codes")) {
      EXPECT_EQ(Digits(data + scales, layout.scales()), golden["scale_codes"].get<std::string>());
      scales += layout.scales();
    }
    const at::Tensor stored =
        bytes.narrow(0, scales, bytes.numel() - scales).clone().view(at::kFloat);
    ASSERT_EQ(static_cast<std::size_t>(stored.numel()), golden["scales"].size());
    for (std::int64_t i = 0; i < stored.numel(); ++i) {
      const double expected = golden["scales"][static_cast<std::size_t>(i)];
      EXPECT_NEAR(stored[i].item<double>(), expected, 1e-7 * std::abs(expected) + 1e-9);
    }
    const at::Tensor back = DequantizeWeight(bytes, layout, at::kFloat).to(at::kDouble).flatten();
    const nlohmann::json& restored = golden["restored"];
    EXPECT_NEAR(back.norm().item<double>(), restored["norm"].get<double>(), 1e-6);
    EXPECT_NEAR(back.dot(at::arange(back.numel(), at::kDouble).cos()).item<double>(),
                restored["probe"].get<double>(), 1e-6);
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(back[back.numel() - 4 + i].item<double>(),
                  restored["last"][static_cast<std::size_t>(i)].get<double>(), 1e-7);
    }
  }
}

TEST(QuantizedWeight, OperatorsGiveBackTheSame) {
  for (const auto format : {BaseFormat::kNf4, BaseFormat::kNf4Double, BaseFormat::kInt8}) {
    for (const std::int64_t columns : {45, 64}) {
      const QuantizedLayout layout{.format = format, .rows = 400, .columns = columns};
      const at::Tensor bytes = QuantizeWeight(at::randn({400, columns}), layout);
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const at::Tensor back = DequantizeWeight(bytes, layout, dtype);
        EXPECT_EQ(back.scalar_type(), dtype);
        EXPECT_TRUE(back.allclose(DequantizeWeightByOperators(bytes, layout, dtype), 1e-2, 1e-6));
        if (dtype == at::kFloat) {
          EXPECT_TRUE(back.allclose(DequantizeWeightByOperators(bytes, layout, dtype), 1e-6, 1e-7));
        }
      }
    }
  }
}

TEST(QuantizedWeight, ZerosComeBackAsZeros) {
  for (const auto format : {BaseFormat::kNf4, BaseFormat::kInt8}) {
    const QuantizedLayout layout{.format = format, .rows = 3, .columns = 50};
    const at::Tensor bytes = QuantizeWeight(at::zeros({3, 50}), layout);
    EXPECT_EQ(DequantizeWeight(bytes, layout, at::kFloat).abs().max().item<double>(), 0.0);
  }
}

TEST(QuantizedWeight, ProductsMatchTheDequantizedWeight) {
  const QuantizedLayout layout{.format = BaseFormat::kNf4, .rows = 6, .columns = 40};
  const at::Tensor bytes = QuantizeWeight(at::randn({6, 40}), layout);
  const at::Tensor weight = DequantizeWeight(bytes, layout, at::kFloat), bias = at::randn({6});
  const at::Tensor x = at::randn({2, 5, 40}).requires_grad_(true);
  const at::Tensor y = QuantizedAffine(x, bytes, layout, bias);
  EXPECT_TRUE(y.allclose(x.matmul(weight.t()) + bias, 1e-5, 1e-5));
  const at::Tensor upstream = at::randn({2, 5, 6});
  y.backward(upstream);
  EXPECT_TRUE(x.grad().allclose(upstream.matmul(weight), 1e-5, 1e-5));
}

TEST(QuantizedWeight, NamesAnotherFormat) {
  EXPECT_THAT(ParseBaseFormat("nf8").status().message(), HasSubstr("nf4, nf4-double or int8"));
}

TEST(DerivedValues, AreReadInPartsAndFollowFromTheWeights) {
  const auto model = LoadGoldenModel("gpt2");  // stores weights in by out
  LoraSpec spec{.rank = 2, .magnitudes = true, .targets = {"c_proj"}};
  ASSERT_TRUE(AddLora(*model, &spec).ok());
  QuantizeBase(*model, BaseFormat::kInt8);
  DerivedValues derived(*model);
  const std::string layer = "transformer.h.1.mlp.c_proj";
  const at::Tensor weight = at::randn({128, 32});
  std::string asked;
  const auto read = [&](const std::string& name, std::int64_t first, const at::Tensor& values) {
    asked = name;
    values.copy_(weight.flatten().narrow(0, first, values.numel()));
    return OkStatus();
  };
  const QuantizedLayout layout{.format = BaseFormat::kInt8, .rows = 32, .columns = 128};
  const at::Tensor bytes = QuantizeWeight(weight.t(), layout);
  at::Tensor part = at::zeros({1000}, at::kByte);
  ASSERT_TRUE(DerivedValues::Has(layer + ".quantized_weight"));
  ASSERT_TRUE(derived.Read(layer + ".quantized_weight", 3000, part, read).ok());
  EXPECT_EQ(asked, layer + ".weight");
  EXPECT_TRUE(at::equal(part, bytes.narrow(0, 3000, 1000)));
  const at::Tensor restored = DequantizeWeight(bytes, layout, at::kFloat);
  EXPECT_TRUE(at::equal(derived.Restore(layer + ".quantized_weight", bytes), restored.t()));
  at::Tensor norms = at::zeros({32});
  ASSERT_TRUE(derived.Read(layer + ".lora_magnitude_vector", 0, norms, read).ok());
  EXPECT_TRUE(norms.allclose(restored.norm(2, {1})));
  EXPECT_FALSE(DerivedValues::Has(layer + ".lora_A.weight"));
}

}  // namespace
}  // namespace ds::models
