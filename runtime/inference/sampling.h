#pragma once

// Choosing the next token from a model's logits, as transformers' generate does: what it calls
// logits processors, in its order, then the most likely token or a draw.
//
// Logits are of one sample, fp32, one for each token of the vocabulary. A token that is ruled out
// has the logit -infinity. Pure; safe from any thread. Torch-free.

#include <cstdint>
#include <span>

namespace ds::inference {

struct SamplingOptions {
  bool draws = false;               // else the most likely token is chosen
  double repetition_penalty = 1.0;  // above 0; 1: none
  // These concern draws only.
  double temperature = 1.0;  // above 0
  std::int64_t top_k = 50;   // 0: all
  double top_p = 1.0;        // above 0; 1: all
};

// Divides the positive logits of these tokens by the penalty and multiplies the negative ones,
// each once, however often a token is seen (arXiv 1909.05858).
void PenaliseRepetition(std::span<float> logits, std::span<const std::int64_t> seen,
                        double penalty);

// Divides by the temperature. Where it is so low that quotients are beyond fp32, the most likely
// token is all that is left.
void ApplyTemperature(std::span<float> logits, double temperature);

// Rules out what is less likely than the k-th most likely token. Requires k > 0.
void KeepTopK(std::span<float> logits, std::int64_t k);

// Keeps the fewest of the most likely tokens whose probabilities reach `p` together, one at least
// (nucleus sampling, arXiv 1904.09751).
void KeepTopP(std::span<float> logits, double p);

// The first of the largest.
std::int64_t FindMostLikely(std::span<const float> logits);

// The token at which the sum of the probabilities, in the order of the ids, passes `uniform`, a
// number from [0, 1).
std::int64_t DrawToken(std::span<const float> logits, double uniform);

// The number that token `index` of the text of sample `sample` is drawn with: of (seed, sample,
// index) only, whatever else is drawn.
double UniformAt(std::uint64_t seed, std::uint64_t sample, std::uint64_t index);

// All of the above. Changes the logits; `seen` are the tokens of the prompt and of the text so far.
std::int64_t ChooseToken(std::span<float> logits, std::span<const std::int64_t> seen,
                         const SamplingOptions& options, double uniform);

}  // namespace ds::inference
