#pragma once

// RopeSpec: rotary position embedding and its scaling for longer contexts. Follows transformers 5
// (modeling_rope_utils).

#include <cstdint>
#include <vector>

#include "runtime/plan/model/config_reader.h"

namespace ds::models {

struct RopeSpec {
  enum class Scaling { kNone, kLinear, kDynamic, kYarn, kLongRope, kLlama3 };
  double theta = 10000.0;
  double rotated_share = 1.0;  // of a head's width, from its start; the rest is not rotated
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double original_positions = 0.0;  // the context length before scaling
  double attention_factor = 1.0;    // multiplies cosines and sines
  double magnitude = 1.0;  // kYarn: from mscale_all_dim, for families that scale scores by it
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // kLlama3
  double fast_rotations = 32.0, slow_rotations = 1.0;              // kYarn: beta_fast, beta_slow
  bool truncates_bounds = true;                                    // kYarn: truncate
  std::vector<double> short_factors, long_factors;                 // kLongRope, one per frequency
};

// Returns the number of rotated element pairs of a head: half of the rotated width, rounded up. A
// config in which twice this number exceeds the head width is invalid.
std::int64_t RotatedPairs(const RopeSpec& rope, std::int64_t head_width);

// Returns the angle per position of each pair. `length`, the tokens of a sequence, matters only for
// kDynamic and kLongRope.
std::vector<float> RopeFrequencies(const RopeSpec& rope, std::int64_t head_width,
                                   std::int64_t length);

// True if the frequencies depend on the length of the sequence.
inline bool DependsOnLength(const RopeSpec& rope) {
  return rope.scaling == RopeSpec::Scaling::kDynamic ||
         rope.scaling == RopeSpec::Scaling::kLongRope;
}

// True if sequences of `a` and of `b` tokens have the same frequencies.
bool HaveSameFrequencies(const RopeSpec& rope, std::int64_t a, std::int64_t b);

// A family's names of the keys outside the object with the scaling.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* rotated_share = nullptr;       // nullptr: the full head is rotated
  const char* original_positions = nullptr;  // a key that takes precedence over the one inside
  bool yarn_is_longrope = false;             // Phi-3's old name for it
};

// Reads rope_theta with rope_scaling, or rope_parameters; keys override the values of `rope`.
// `max_positions` is the model's.
RopeSpec ReadRope(ConfigReader& reader, const RopeKeys& keys, RopeSpec rope,
                  std::int64_t max_positions);

// Reads the object `json`, found under `key`; its keys override the values of `rope`.
RopeSpec ReadRopeObject(ConfigReader& reader, const std::string& key,
                        const nlohmann::ordered_json& json, const RopeKeys& keys, RopeSpec rope,
                        std::int64_t max_positions);

}  // namespace ds::models
