#include <cmath>
#include <map>

#include "runtime/plan/model/rope_spec.h"

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
  rope->fast_turns = reader.Number("beta_fast", 32.0, kPositive);
  rope->slow_turns = reader.Number("beta_slow", 1.0, kPositive);
  rope->whole_bounds = reader.Bool("truncate", true);
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

}  // namespace ds::models
