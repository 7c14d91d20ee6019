#include "runtime/models/kernels/quantized_weight.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/device/autocast_scope.h"
#include "runtime/device/kernels/first_derivative.h"
#include "runtime/device/parallel.h"
#include "runtime/models/kernels/matmul.h"

namespace ds::models {
namespace {

// The code of an element is the index of the value nearest to element / scale. The scale is the
// largest magnitude of the element's block or row. quantized_layout.h defines the formats.

// NF4: quantiles of a normal distribution in [-1, 1], including 0 (QLoRA paper, appendix E).
constexpr std::array<float, 16> kNf4Values = {
    -1.0F,        -0.69619280F, -0.52507305F, -0.39491749F, -0.28444138F, -0.18477343F,
    -0.09105004F, 0.0F,         0.07958030F,  0.16093020F,  0.24611230F,  0.33791524F,
    0.44070983F,  0.56261700F,  0.72295684F,  1.0F};
constexpr float kLeastScale = 1e-38F;         // divisor in a block of zeros
constexpr std::int64_t kBlocksOfThread = 64;  // least blocks or rows per thread

// The 256 values of the dynamic tree data type (https://arxiv.org/abs/1511.04561), for the codes of
// scales: seven decades of either sign, each with twice as many linear steps as the previous one,
// plus 0 and 1.
std::array<float, 256> MakeDynamicValues() {
  std::vector<float> values{0.0F, 1.0F};
  for (int decade = 0; decade < 7; ++decade) {
    const int items = 1 << decade;
    const auto unit = static_cast<float>(std::pow(10.0, decade - 6));
    const float step = (1.0F - 0.1F) / static_cast<float>(items);
    // Counts from the nearer end, so that the values are rounded as in bitsandbytes.
    const auto boundary = [&](int i) {
      return 2 * i < items + 1 ? 0.1F + step * static_cast<float>(i)
                               : 1.0F - step * static_cast<float>(items - i);
    };
    for (int i = 0; i < items; ++i) {
      const float value = unit * ((boundary(i) + boundary(i + 1)) / 2.0F);
      values.insert(values.end(), {value, -value});
    }
  }
  std::array<float, 256> sorted{};
  DS_CHECK(values.size() == sorted.size());
  std::sort(values.begin(), values.end());
  std::copy(values.begin(), values.end(), sorted.begin());
  return sorted;
}

const std::array<float, 256>& DynamicValues() {
  static const std::array<float, 256> values = MakeDynamicValues();
  return values;
}

// Returns the index of the nearest of `values`, which ascend; the lower one on ties.
template <std::size_t kCount>
std::uint8_t FindNearest(const std::array<float, kCount>& values, float x) {
  std::size_t low = 0, count = kCount - 1;  // bound i is midway between i and i + 1
  while (count > 0) {
    const std::size_t half = count / 2, bound = low + half;
    if (x > (values[bound] + values[bound + 1]) / 2.0F) {
      low = bound + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return static_cast<std::uint8_t>(low);
}

float LargestMagnitude(std::span<const float> values) {
  float most = 0.0F;
  for (const float value : values) most = std::max(most, std::fabs(value));
  return most;
}

// Returns a block of `size` elements; the last block may be shorter.
std::span<const float> BlockOf(std::span<const float> values, std::int64_t block,
                               std::int64_t size) {
  const auto first = static_cast<std::size_t>(block * size);
  return values.subspan(first, std::min(static_cast<std::size_t>(size), values.size() - first));
}

// Returns value / scale in [-1, 1]. Full blocks are multiplied by a reciprocal, and a shorter last
// block is divided. This makes the results bit-identical to bitsandbytes.
float Scaled(float value, float scale, bool is_full) {
  const float least = std::max(scale, kLeastScale);
  return std::clamp(is_full ? value * (1.0F / least) : value / least, -1.0F, 1.0F);
}

// Writes the 4-bit codes of all elements, two in a byte. Returns the scales of the blocks.
std::vector<float> WriteNf4Codes(std::span<const float> weight, std::uint8_t* out) {
  const auto count = static_cast<std::int64_t>(weight.size());
  const std::int64_t blocks = (count + kNf4Block - 1) / kNf4Block;
  std::vector<float> scales(static_cast<std::size_t>(blocks));
  device::ParallelFor(0, blocks, kBlocksOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::span<const float> values = BlockOf(weight, block, kNf4Block);
      const float scale = LargestMagnitude(values);
      const bool is_full = values.size() == static_cast<std::size_t>(kNf4Block);
      scales[static_cast<std::size_t>(block)] = is_full ? scale : std::max(scale, kLeastScale);
      for (std::size_t i = 0; i < values.size(); i += 2) {
        const auto code = [&](std::size_t at) {
          const float value = at < values.size() ? values[at] : 0.0F;
          return FindNearest(kNf4Values, Scaled(value, scale, is_full));
        };
        out[(block * kNf4Block + static_cast<std::int64_t>(i)) / 2] =
            static_cast<std::uint8_t>(code(i) << 4 | code(i + 1));
      }
    }
  });
  return scales;
}

void WriteFloats(std::span<const float> values, std::uint8_t* out) {
  std::memcpy(out, values.data(), values.size_bytes());
}

std::vector<float> ReadFloats(const std::uint8_t* bytes, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::memcpy(values.data(), bytes, values.size() * sizeof(float));
  return values;
}

// Quantises the scales themselves (double quantisation): writes an 8-bit code for the difference of
// each scale from their mean, then the scales of these codes, then the mean. bitsandbytes
// multiplies by the reciprocal here in the last block, too.
void WriteScaleCodes(std::span<const float> scales, const QuantizedLayout& layout,
                     std::uint8_t* out) {
  const double sum = std::accumulate(scales.begin(), scales.end(), 0.0);
  const auto mean = static_cast<float>(sum / static_cast<double>(scales.size()));
  std::vector<float> centred(scales.begin(), scales.end()), of_scales;
  for (float& scale : centred) scale -= mean;
  for (std::int64_t block = 0; block < layout.scales_of_scales(); ++block) {
    const std::span<const float> values = BlockOf(centred, block, kScalesBlock);
    of_scales.push_back(LargestMagnitude(values));
    for (const float value : values) {
      *out++ = FindNearest(DynamicValues(), Scaled(value, of_scales.back(), /*is_full=*/true));
    }
  }
  of_scales.push_back(mean);
  WriteFloats(of_scales, out);
}

// Writes codes from -127 to 127 for all elements, then the scales of the rows.
void WriteInt8(std::span<const float> weight, const QuantizedLayout& layout, std::uint8_t* out) {
  std::vector<float> scales(static_cast<std::size_t>(layout.rows));
  device::ParallelFor(0, layout.rows, kBlocksOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::span<const float> values = BlockOf(weight, row, layout.columns);
      const float scale = LargestMagnitude(values);
      scales[static_cast<std::size_t>(row)] = scale;
      const float factor = scale > 0.0F ? 127.0F / scale : 0.0F;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto code = static_cast<std::int8_t>(std::nearbyint(values[i] * factor));
        out[row * layout.columns + static_cast<std::int64_t>(i)] = static_cast<std::uint8_t>(code);
      }
    }
  });
  WriteFloats(scales, out + layout.code_bytes());
}

// Returns the scales of blocks or rows; with kNf4Double, computes them from their codes.
std::vector<float> ReadScales(const std::uint8_t* bytes, const QuantizedLayout& layout) {
  const std::uint8_t* const codes = bytes + layout.code_bytes();
  if (layout.format != BaseFormat::kNf4Double) return ReadFloats(codes, layout.scales());
  const auto of_scales = ReadFloats(codes + layout.scales(), layout.scales_of_scales() + 1);
  std::vector<float> scales(static_cast<std::size_t>(layout.scales()));
  for (std::size_t i = 0; i < scales.size(); ++i) {
    scales[i] = DynamicValues()[codes[i]] * of_scales[i / kScalesBlock] + of_scales.back();
  }
  return scales;
}

constexpr float kInt8Step = 1.0F / 127.0F;  // an element is code * scale * kInt8Step

template <typename Scalar>
void ReadNf4Codes(const std::uint8_t* codes, std::span<const float> scales, at::Tensor& out) {
  auto* const values = out.mutable_data_ptr<Scalar>();
  const auto blocks = static_cast<std::int64_t>(scales.size());
  const std::int64_t count = out.numel();
  device::ParallelFor(0, blocks, kBlocksOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const float scale = scales[static_cast<std::size_t>(block)];
      std::array<Scalar, 16> table;  // the elements that the codes stand for in this block
      for (std::size_t i = 0; i < table.size(); ++i) {
        table[i] = static_cast<Scalar>(kNf4Values[i] * scale);
      }
      const std::int64_t first = block * kNf4Block, last = std::min(first + kNf4Block, count);
      for (std::int64_t i = first; i < last; i += 2) {
        const std::uint8_t pair = codes[i / 2];
        values[i] = table[pair >> 4];
        if (i + 1 < last) values[i + 1] = table[pair & 0xF];
      }
    }
  });
}

template <typename Scalar>
void ReadInt8(const std::uint8_t* codes, std::span<const float> scales, at::Tensor& out) {
  auto* const values = out.mutable_data_ptr<Scalar>();
  const std::int64_t columns = out.size(1);
  device::ParallelFor(0, out.size(0), kBlocksOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float scale = scales[static_cast<std::size_t>(row)];
      for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i) {
        const auto code = static_cast<float>(static_cast<std::int8_t>(codes[i]));
        values[i] = static_cast<Scalar>(code * scale * kInt8Step);
      }
    }
  });
}

template <typename Scalar>
void ReadCodes(const std::uint8_t* bytes, const QuantizedLayout& layout, at::Tensor& out) {
  const std::vector<float> scales = ReadScales(bytes, layout);
  if (layout.format == BaseFormat::kInt8) return ReadInt8<Scalar>(bytes, scales, out);
  ReadNf4Codes<Scalar>(bytes, scales, out);
}

}  // namespace

at::Tensor QuantizeWeight(const at::Tensor& weight, const QuantizedLayout& layout) {
  DS_CHECK(weight.size(0) == layout.rows && weight.size(1) == layout.columns);
  const at::Tensor wide = weight.detach().to(at::kFloat).contiguous();
  const std::span<const float> values(wide.const_data_ptr<float>(),
                                      static_cast<std::size_t>(wide.numel()));
  at::Tensor bytes = at::empty({layout.bytes()}, at::kByte);
  auto* const out = bytes.mutable_data_ptr<std::uint8_t>();
  if (layout.format == BaseFormat::kInt8) {
    WriteInt8(values, layout, out);
    return bytes;
  }
  const std::vector<float> scales = WriteNf4Codes(values, out);
  if (layout.format == BaseFormat::kNf4) {
    WriteFloats(scales, out + layout.code_bytes());
  } else {
    WriteScaleCodes(scales, layout, out + layout.code_bytes());
  }
  return bytes;
}

at::Tensor DequantizeWeight(const at::Tensor& bytes, const QuantizedLayout& layout,
                            at::ScalarType dtype) {
  if (!bytes.is_cpu()) return DequantizeWeightByOperators(bytes, layout, dtype);
  DS_CHECK(bytes.numel() == layout.bytes());
  at::Tensor out = at::empty({layout.rows, layout.columns}, bytes.options().dtype(dtype));
  const auto* const from = bytes.const_data_ptr<std::uint8_t>();
  switch (dtype) {
    case at::kBFloat16:
      ReadCodes<at::BFloat16>(from, layout, out);
      break;
    case at::kHalf:
      ReadCodes<at::Half>(from, layout, out);
      break;
    default:
      DS_CHECK(dtype == at::kFloat);
      ReadCodes<float>(from, layout, out);
  }
  return out;
}

at::Tensor DequantizeWeightByOperators(const at::Tensor& bytes, const QuantizedLayout& layout,
                                       at::ScalarType dtype) {
  const auto table = [&](const auto& values) {
    return at::tensor(at::ArrayRef<float>(values.data(), values.size()), at::kFloat)
        .to(bytes.device());
  };
  // Copied, because the bytes may not be aligned for floats.
  const auto floats = [&](std::int64_t first, std::int64_t count) {
    return bytes.narrow(0, first, 4 * count).clone().view(at::kFloat);
  };
  const std::int64_t codes_end = layout.code_bytes(), scale_count = layout.scales();
  const at::Tensor codes = bytes.narrow(0, 0, codes_end);
  if (layout.format == BaseFormat::kInt8) {
    const at::Tensor wide = codes.view(at::kChar).to(at::kFloat).view({layout.rows, -1});
    return (wide * floats(codes_end, scale_count).unsqueeze(1) * kInt8Step).to(dtype);
  }
  at::Tensor scales;
  if (layout.format == BaseFormat::kNf4) {
    scales = floats(codes_end, scale_count);
  } else {
    const at::Tensor of_scales = floats(codes_end + scale_count, layout.scales_of_scales() + 1);
    scales = table(DynamicValues())
                 .index_select(0, bytes.narrow(0, codes_end, scale_count).to(at::kInt))
                 .mul(of_scales.narrow(0, 0, layout.scales_of_scales())
                          .repeat_interleave(kScalesBlock)
                          .narrow(0, 0, scale_count))
                 .add(of_scales.narrow(0, layout.scales_of_scales(), 1));
  }
  const at::Tensor pairs = at::stack({codes.__rshift__(4), codes.bitwise_and(0xF)}, 1);
  const at::Tensor values =
      table(kNf4Values).index_select(0, pairs.flatten().narrow(0, 0, layout.numel()).to(at::kInt));
  return values.mul(scales.repeat_interleave(kNf4Block).narrow(0, 0, layout.numel()))
      .to(dtype)
      .view({layout.rows, layout.columns});
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Saves the bytes for the backward pass, not the larger dequantised weight.
class QuantizedAffineFunction : public torch::autograd::Function<QuantizedAffineFunction> {
 public:
  // x [N, columns].
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bytes,
                            const QuantizedLayout& layout) {
    context->save_for_backward({bytes});
    context->saved_data["format"] = static_cast<std::int64_t>(layout.format);
    context->saved_data["rows"] = layout.rows;
    context->saved_data["columns"] = layout.columns;
    at::Tensor y = at::empty({x.size(0), layout.rows}, x.options());
    MatMulInto(y, x, DequantizeWeight(bytes, layout, x.scalar_type()).t());
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    kernels::CheckIsFirstDerivative("a quantised layer");
    variable_list result(3);  // of x, bytes and layout; only x has a gradient
    if (!context->needs_input_grad(0)) return result;
    const at::Tensor bytes = context->get_saved_variables()[0];
    const QuantizedLayout layout{
        .format = static_cast<BaseFormat>(context->saved_data["format"].toInt()),
        .rows = context->saved_data["rows"].toInt(),
        .columns = context->saved_data["columns"].toInt()};
    const at::Tensor gradient = upstream[0].contiguous();
    result[0] = at::empty({gradient.size(0), layout.columns}, gradient.options());
    MatMulInto(result[0], gradient, DequantizeWeight(bytes, layout, gradient.scalar_type()));
    return result;
  }
};

}  // namespace

at::Tensor QuantizedAffine(const at::Tensor& x, const at::Tensor& bytes,
                           const QuantizedLayout& layout, const at::Tensor& bias) {
  const at::Tensor operand = precision::AutocastOperand(x);
  std::vector<std::int64_t> shape = operand.sizes().vec();
  shape.back() = layout.rows;
  const at::Tensor rows = operand.reshape({-1, layout.columns}).contiguous();
  const at::Tensor y = QuantizedAffineFunction::apply(rows, bytes, layout).view(shape);
  return bias.defined() ? y + precision::AutocastOperand(bias) : y;
}

}  // namespace ds::models
