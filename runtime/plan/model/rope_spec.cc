#include "runtime/plan/model/rope_spec.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

namespace ds::models {
namespace {

constexpr ConfigReader::Range kTheta{1e-6, 1e12}, kFactor{1.0, 1e6}, kPositive{1e-6, 1e12};

std::optional<RopeSpec::Scaling> FindScaling(const std::string& type, const RopeKeys& keys) {
  static const std::map<std::string, RopeSpec::Scaling> kNames = {
      {"default", RopeSpec::Scaling::kNone},      {"linear", RopeSpec::Scaling::kLinear},
      {"dynamic", RopeSpec::Scaling::kDynamic},   {"yarn", RopeSpec::Scaling::kYarn},
      {"longrope", RopeSpec::Scaling::kLongRope}, {"llama3", RopeSpec::Scaling::kLlama3}};
  if (keys.yarn_is_longrope && (type == "su" || type == "yarn"))
    return RopeSpec::Scaling::kLongRope;
  const auto found = kNames.find(type);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

void ReadLlama3(ConfigReader& reader, RopeSpec* rope) {
  rope->low_frequency_factor = reader.Number("low_freq_factor", 1.0, {1e-6, 1e6});
  rope->high_frequency_factor = reader.Number("high_freq_factor", 4.0, {1e-6, 1e6});
  if (rope->high_frequency_factor <= rope->low_frequency_factor) {
    reader.Refuse("high_freq_factor must be greater than low_freq_factor");
  }
}

double MagnitudeOf(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

void ReadYarn(ConfigReader& reader, RopeSpec* rope) {
  rope->fast_rotations = reader.Number("beta_fast", 32.0, kPositive);
  rope->slow_rotations = reader.Number("beta_slow", 1.0, kPositive);
  rope->truncates_bounds = reader.Bool("truncate", true);
  const double scale = reader.NumberOrNone("mscale", 0.0, {0.0, 1e6});
  const double scale_of_all = reader.NumberOrNone("mscale_all_dim", 0.0, {0.0, 1e6});
  rope->magnitude = scale_of_all != 0.0 ? MagnitudeOf(rope->factor, scale_of_all) : 1.0;
  double factor = MagnitudeOf(rope->factor, 1.0);
  if (scale != 0.0 && scale_of_all != 0.0) {
    factor = MagnitudeOf(rope->factor, scale) / MagnitudeOf(rope->factor, scale_of_all);
  }
  rope->attention_factor = reader.Number("attention_factor", factor, kPositive);
}

void ReadLongRope(ConfigReader& reader, RopeSpec* rope) {
  rope->short_factors = reader.Numbers("short_factor").value_or(std::vector<double>());
  rope->long_factors = reader.Numbers("long_factor").value_or(std::vector<double>());
  double factor = 1.0;
  if (rope->factor > 1.0 && rope->original_positions > 1.0) {
    factor = std::sqrt(1.0 + std::log(rope->factor) / std::log(rope->original_positions));
  }
  rope->attention_factor = reader.Number("attention_factor", factor, kPositive);
}

using Scaling = RopeSpec::Scaling;

// Llama 3: frequencies with wavelengths far beyond the original context are divided by `factor`,
// short wavelengths are unchanged, and those between are interpolated.
double Llama3Frequency(const RopeSpec& rope, double frequency) {
  const double rotations = rope.original_positions * frequency / (2.0 * std::numbers::pi);
  if (rotations < rope.low_frequency_factor) return frequency / rope.factor;
  if (rotations > rope.high_frequency_factor) return frequency;
  const double smooth = (rotations - rope.low_frequency_factor) /
                        (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// YaRN (arXiv 2309.00071): the weight of the unscaled frequency falls along a ramp, between the
// pairs that make fast_rotations and slow_rotations rotations within the original context.
class YarnRamp {
 public:
  YarnRamp(const RopeSpec& rope, double width) : rope_(rope), width_(width) {
    first_ = FindRotaryPair(rope.fast_rotations);
    last_ = FindRotaryPair(rope.slow_rotations);
    if (rope.truncates_bounds) {
      first_ = std::floor(first_);
      last_ = std::ceil(last_);
    }
    first_ = std::max(first_, 0.0);
    last_ = std::min(last_, width - 1.0);
    if (first_ == last_) last_ += 0.001;
  }
  double Stretch(double frequency, std::int64_t pair) const {
    const double fraction = (static_cast<double>(pair) - first_) / (last_ - first_);
    const double stretched = std::clamp(fraction, 0.0, 1.0);
    return frequency * (1.0 - stretched) + frequency / rope_.factor * stretched;
  }

 private:
  double FindRotaryPair(double rotations) const {
    return width_ * std::log(rope_.original_positions / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope_.theta));
  }

  const RopeSpec& rope_;
  double width_, first_ = 0.0, last_ = 0.0;
};

// Returns the base of the powers; under dynamic NTK scaling it grows with the sequence length.
double Base(const RopeSpec& rope, double width, double length) {
  if (rope.scaling != Scaling::kDynamic || length <= rope.original_positions) return rope.theta;
  const double growth = rope.factor * length / rope.original_positions - (rope.factor - 1.0);
  return rope.theta * std::pow(growth, width / (width - 2.0));
}

std::int64_t RotatedWidth(const RopeSpec& rope, std::int64_t head_width) {
  return static_cast<std::int64_t>(static_cast<double>(head_width) * rope.rotated_share);
}

}  // namespace

RopeSpec ReadRopeObject(ConfigReader& reader, const std::string& key,
                        const nlohmann::ordered_json& json, const RopeKeys& keys, RopeSpec rope,
                        std::int64_t max_positions) {
  ConfigReader inner(json, "'" + key + "'");
  rope.theta = inner.Number("rope_theta", rope.theta, kTheta);
  const double share = inner.Number("partial_rotary_factor", rope.rotated_share, {0.0, 1.0});
  if (keys.rotated_share == nullptr && share != rope.rotated_share) {
    inner.Refuse("'partial_rotary_factor' is not supported for this model type");
  }
  rope.rotated_share = share;
  const std::string type = inner.String("rope_type", inner.String("type", "default"));
  const std::optional<RopeSpec::Scaling> scaling = FindScaling(type, keys);
  if (!scaling) {
    inner.Refuse("rope_type \"" + type +
                 "\" is not supported; supported are default, linear, dynamic, yarn, longrope and "
                 "llama3");
  }
  rope.scaling = scaling.value_or(RopeSpec::Scaling::kNone);
  const auto most = static_cast<double>(max_positions);
  double original = most;
  if (keys.original_positions != nullptr) {
    original = reader.Number(keys.original_positions, rope.original_positions, kPositive);
  }
  // Families that have it save it with every kind of scaling.
  const double inside = inner.Number("original_max_position_embeddings", original, kPositive);
  rope.original_positions =
      keys.original_positions != nullptr ? original : inside;  // the outer key takes precedence
  if (rope.scaling == RopeSpec::Scaling::kDynamic) rope.original_positions = most;
  if (rope.scaling != RopeSpec::Scaling::kNone) {
    const bool follows_lengths =
        rope.scaling == RopeSpec::Scaling::kYarn || rope.scaling == RopeSpec::Scaling::kLongRope;
    const double absent = follows_lengths ? most / rope.original_positions : 1.0;
    rope.factor = inner.Number("factor", std::max(absent, 1.0), kFactor);
  }
  if (rope.scaling == RopeSpec::Scaling::kLlama3) ReadLlama3(inner, &rope);
  if (rope.scaling == RopeSpec::Scaling::kYarn) ReadYarn(inner, &rope);
  if (rope.scaling == RopeSpec::Scaling::kLongRope) ReadLongRope(inner, &rope);
  if (Status status = inner.Finish(); !status.ok()) reader.Refuse(status.message());
  return rope;
}

RopeSpec ReadRope(ConfigReader& reader, const RopeKeys& keys, RopeSpec rope,
                  std::int64_t max_positions) {
  rope.theta = reader.Number(keys.theta, rope.theta, kTheta);
  if (keys.rotated_share != nullptr) {
    rope.rotated_share = reader.Number(keys.rotated_share, rope.rotated_share, {0.0, 1.0});
  }
  if (keys.original_positions != nullptr) reader.IgnoreKey(keys.original_positions);
  // Older files have the base and rope_scaling; newer ones have rope_parameters with both. If a
  // file has both objects, transformers reads only rope_scaling, unless it is empty.
  const nlohmann::ordered_json scaling = reader.Object("rope_scaling");
  const nlohmann::ordered_json parameters = reader.Object("rope_parameters");
  const bool is_old = !scaling.empty();
  const nlohmann::ordered_json& json = is_old ? scaling : parameters;
  if (json.empty()) return rope;
  return ReadRopeObject(reader, is_old ? "rope_scaling" : "rope_parameters", json, keys, rope,
                        max_positions);
}

std::int64_t RotatedPairs(const RopeSpec& rope, std::int64_t head_width) {
  return (RotatedWidth(rope, head_width) + 1) / 2;
}

std::vector<float> RopeFrequencies(const RopeSpec& rope, std::int64_t head_width,
                                   std::int64_t length) {
  const std::int64_t pairs = RotatedPairs(rope, head_width);
  const auto width = static_cast<double>(RotatedWidth(rope, head_width));
  const auto tokens = static_cast<double>(length);
  const double base = Base(rope, width, tokens);
  std::optional<YarnRamp> ramp;
  if (rope.scaling == Scaling::kYarn) ramp.emplace(rope, width);
  const auto& factors = tokens > rope.original_positions ? rope.long_factors : rope.short_factors;
  std::vector<float> frequencies;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    double frequency = std::pow(base, -static_cast<double>(2 * pair) / width);
    if (rope.scaling == Scaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == Scaling::kLlama3) frequency = Llama3Frequency(rope, frequency);
    if (ramp) frequency = ramp->Stretch(frequency, pair);
    if (rope.scaling == Scaling::kLongRope) frequency /= factors[static_cast<std::size_t>(pair)];
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

bool HaveSameFrequencies(const RopeSpec& rope, std::int64_t a, std::int64_t b) {
  if (!DependsOnLength(rope) || a == b) return true;
  const double shorter = static_cast<double>(std::min(a, b)),
               longer = static_cast<double>(std::max(a, b));
  if (rope.scaling == Scaling::kDynamic) return longer <= rope.original_positions;
  return (shorter > rope.original_positions) == (longer > rope.original_positions);
}

}  // namespace ds::models
