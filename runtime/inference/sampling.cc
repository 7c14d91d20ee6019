#include "runtime/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"

namespace ds::inference {
namespace {

constexpr float kRuledOut = -std::numeric_limits<float>::infinity();

// Weights: exp(logit - largest logit) of each token, and their sum.
struct Weights {
  std::vector<double> values;
  double sum = 0.0;
};

Weights WeighTokens(std::span<const float> logits) {
  Weights weights;
  weights.values.reserve(logits.size());
  const double largest = *std::max_element(logits.begin(), logits.end());
  for (const float logit : logits) {
    weights.values.push_back(std::exp(static_cast<double>(logit) - largest));
    weights.sum += weights.values.back();
  }
  return weights;
}

}  // namespace

void PenaliseRepetition(std::span<float> logits, std::span<const std::int64_t> seen,
                        double penalty) {
  std::vector<std::int64_t> tokens(seen.begin(), seen.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  const auto factor = static_cast<float>(penalty);
  for (const std::int64_t token : tokens) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = logit < 0.0F ? logit * factor : logit / factor;
  }
}

void ApplyTemperature(std::span<float> logits, double temperature) {
  const auto divisor = static_cast<float>(temperature);
  const auto likeliest = static_cast<std::size_t>(FindMostLikely(logits));
  if (!std::isfinite(logits[likeliest] / divisor)) {
    std::fill(logits.begin(), logits.end(), kRuledOut);
    logits[likeliest] = 0.0F;
    return;
  }
  for (float& logit : logits) logit /= divisor;
}

void KeepTopK(std::span<float> logits, std::int64_t k) {
  DS_CHECK(k > 0);
  if (static_cast<std::size_t>(k) >= logits.size()) return;
  std::vector<float> ordered(logits.begin(), logits.end());
  const auto last = ordered.begin() + k - 1;
  std::nth_element(ordered.begin(), last, ordered.end(), std::greater<>());
  for (float& logit : logits) {
    if (logit < *last) logit = kRuledOut;
  }
}

void KeepTopP(std::span<float> logits, double p) {
  const Weights weights = WeighTokens(logits);
  std::vector<std::size_t> tokens;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kRuledOut) tokens.push_back(i);
  }
  // Exclude the least likely tokens, up to the first one that the sum needs.
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] < logits[b]; });
  double passed = 0.0;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    passed += weights.values[tokens[i]] / weights.sum;
    if (passed > 1.0 - p) return;
    logits[tokens[i]] = kRuledOut;
  }
}

std::int64_t FindMostLikely(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

std::int64_t DrawToken(std::span<const float> logits, double uniform) {
  const Weights weights = WeighTokens(logits);
  const double wanted = uniform * weights.sum;
  double passed = 0.0;
  std::size_t last = 0;  // last drawable token; used if rounding leaves the sum short
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (weights.values[i] == 0.0) continue;
    last = i;
    passed += weights.values[i];
    if (passed > wanted) break;
  }
  return static_cast<std::int64_t>(last);
}

double UniformAt(std::uint64_t seed, std::uint64_t sample, std::uint64_t index) {
  const std::uint64_t key = ExtendKey(ExtendKey(seed, "generate"), sample);
  const PhiloxCounter words = Philox(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0}, key);
  const std::uint64_t bits = (std::uint64_t{words[1]} << 32 | words[0]) >> 11;
  return std::ldexp(static_cast<double>(bits), -53);
}

std::int64_t ChooseToken(std::span<float> logits, std::span<const std::int64_t> seen,
                         const SamplingOptions& options, double uniform) {
  if (options.repetition_penalty != 1.0) {
    PenaliseRepetition(logits, seen, options.repetition_penalty);
  }
  if (!options.draws) return FindMostLikely(logits);
  if (options.temperature != 1.0) ApplyTemperature(logits, options.temperature);
  if (options.top_k > 0) KeepTopK(logits, options.top_k);
  if (options.top_p < 1.0) KeepTopP(logits, options.top_p);
  return DrawToken(logits, uniform);
}

}  // namespace ds::inference
