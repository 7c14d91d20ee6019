#pragma once

// RopeSpec: rotary position embedding, and how it is stretched for longer contexts. As
// transformers 5 computes it (modeling_rope_utils).

#include <cstdint>
#include <vector>

#include "runtime/plan/model/config_reader.h"

namespace ds::models {

struct RopeSpec {
  enum class Scaling { kNone, kLinear, kDynamic, kYarn, kLongRope, kLlama3 };
  double theta = 10000.0;
  double rotated_share = 1.0;  // of a head's width; what is behind is not turned
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double original_positions = 0.0;  // the length of the training before the stretch
  double attention_factor = 1.0;    // cosines and sines are multiplied by it
  double magnitude = 1.0;           // kYarn: of mscale_all_dim, for families whose scores follow it
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // kLlama3
  double fast_turns = 32.0, slow_turns = 1.0;                      // kYarn: beta_fast, beta_slow
  bool whole_bounds = true;                                        // kYarn: truncate
  std::vector<double> short_factors, long_factors;                 // kLongRope, one per frequency
};

// Returns how many pairs of a head's elements are turned: half of the share, rounded up. Where
// twice as many do not fit into the head, it is an error of the config.
std::int64_t RotatedPairs(const RopeSpec& rope, std::int64_t head_width);

// The angle per position of each pair, for sequences of `length` tokens, which only kDynamic and
// kLongRope ask for.
std::vector<float> RopeFrequencies(const RopeSpec& rope, std::int64_t head_width,
                                   std::int64_t length);

// Tells whether the frequencies depend on the length of the sequence.
inline bool DependsOnLength(const RopeSpec& rope) {
  return rope.scaling == RopeSpec::Scaling::kDynamic ||
         rope.scaling == RopeSpec::Scaling::kLongRope;
}

// Tells whether they are the same for sequences of `a` and of `b` tokens.
bool HaveSameFrequencies(const RopeSpec& rope, std::int64_t a, std::int64_t b);

// A family calls the keys so that stand outside of the object with the scaling.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* rotated_share = nullptr;       // nullptr: heads are turned as a whole
  const char* original_positions = nullptr;  // a key that goes before the one inside
  bool yarn_is_longrope = false;             // Phi-3's old name for it
};

// Reads rope_theta with rope_scaling, or rope_parameters, over what `rope` says.
// `max_positions` is the model's.
RopeSpec ReadRope(ConfigReader& reader, const RopeKeys& keys, RopeSpec rope,
                  std::int64_t max_positions);

// Reads the object `json`, found under `key`, over what `rope` says.
RopeSpec ReadRopeObject(ConfigReader& reader, const std::string& key,
                        const nlohmann::ordered_json& json, const RopeKeys& keys, RopeSpec rope,
                        std::int64_t max_positions);

}  // namespace ds::models
