#pragma once

// Chooses the next token from a model's logits, like transformers' generate: logits processors in
// its order, then the most likely token or a random draw.
//
// Logits belong to one sample: fp32, one per token of the vocabulary. An excluded token has the
// logit -infinity. Pure, thread-safe, torch-free.

#include <cstdint>
#include <span>

namespace ds::inference {

struct SamplingOptions {
  bool draws = false;               // false: choose the most likely token
  double repetition_penalty = 1.0;  // above 0; 1: none
  // The following settings apply to draws only.
  double temperature = 1.0;  // above 0
  std::int64_t top_k = 50;   // 0: all
  double top_p = 1.0;        // above 0; 1: all
};

// Divides the positive logits of the `seen` tokens by the penalty and multiplies the negative ones.
// Each token is penalised once, even if it is seen several times (arXiv 1909.05858).
void PenaliseRepetition(std::span<float> logits, std::span<const std::int64_t> seen,
                        double penalty);

// Divides by the temperature. If the quotients overflow fp32, only the most likely token remains.
void ApplyTemperature(std::span<float> logits, double temperature);

// Excludes tokens that are less likely than the k-th most likely token. Requires k > 0.
void KeepTopK(std::span<float> logits, std::int64_t k);

// Keeps the smallest set of the most likely tokens with a total probability of at least `p`, and at
// least one token (nucleus sampling, arXiv 1904.09751).
void KeepTopP(std::span<float> logits, double p);

// Returns the first of the largest.
std::int64_t FindMostLikely(std::span<const float> logits);

// Returns the token at which the sum of the probabilities, in the order of the ids, exceeds
// `uniform`, a number in [0, 1).
std::int64_t DrawToken(std::span<const float> logits, double uniform);

// Returns the random number in [0, 1) for token `index` of sample `sample`. It depends only on
// (seed, sample, index).
double UniformAt(std::uint64_t seed, std::uint64_t sample, std::uint64_t index);

// Applies all of the above and returns the chosen token. Changes the logits. `seen` holds the
// tokens of the prompt and of the text so far.
std::int64_t ChooseToken(std::span<float> logits, std::span<const std::int64_t> seen,
                         const SamplingOptions& options, double uniform);

}  // namespace ds::inference
