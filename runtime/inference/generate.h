#pragma once

// Generate: generates text from a decoder, token by token, with a key-value cache.
//
// A batch of prompts of any lengths runs together. The text of a sample does not depend on the
// others, except for the rounding of matrix products: their order of sums may depend on the batch
// size.

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/inference/sampling.h"
#include "runtime/models/block.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::inference {

struct Prompt {
  std::vector<std::int64_t> tokens;  // at least one
  std::uint64_t number = 0;          // selects the sample's own random numbers (UniformAt)
  std::int64_t most_new_tokens = 1;
};

struct GenerateOptions {
  SamplingOptions sampling;
  std::vector<std::int64_t> end_tokens;
  std::uint64_t seed = 0;
};

enum class Ending { kEndToken, kLength };

// GenerationObserver: receives each text as it grows. `prompt` is an index into the prompts.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  // Called for each token except end tokens.
  virtual void OnToken(std::size_t prompt, std::int64_t token) = 0;
  virtual void OnEnd(std::size_t prompt, Ending ending) = 0;
  // Called before each forward pass; returning false stops all texts, without OnEnd.
  virtual bool accepts_more() const { return true; }
};

// Generates texts for all prompts together. The model has its weights and is in evaluation mode;
// `spec` describes it. Throws c10::Error, also for non-finite logits, and the exceptions of the
// observer.
void Generate(const BlockList& model, const models::DecoderSpec& spec,
              const std::vector<Prompt>& prompts, const GenerateOptions& options,
              GenerationObserver& observer);

}  // namespace ds::inference
