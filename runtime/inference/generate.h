#pragma once

// Generate: texts from a decoder, token by token, with a cache of keys and values.
//
// A batch of prompts of any lengths runs together; what a sample's text is does not depend on the
// others (but for the rounding of products, whose order of sums may follow the batch's size).

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/inference/sampling.h"
#include "runtime/models/block.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::inference {

struct Prompt {
  std::vector<std::int64_t> tokens;  // one at least
  std::uint64_t number = 0;          // what it draws is its own under this number (UniformAt)
  std::int64_t most_new_tokens = 1;
};

struct GenerateOptions {
  SamplingOptions sampling;
  std::vector<std::int64_t> end_tokens;
  std::uint64_t seed = 0;
};

enum class Ending { kEndToken, kLength };

// Hears of each text as it grows. `prompt` is an index into the prompts.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  // An end token is not told.
  virtual void OnToken(std::size_t prompt, std::int64_t token) = 0;
  virtual void OnEnd(std::size_t prompt, Ending ending) = 0;
  // Asked before each pass of the model; false ends all texts where they are, without OnEnd.
  virtual bool hears_more() const { return true; }
};

// Generates all of them together. The model has its weights and is in evaluation mode; `spec` is
// its own. Throws c10::Error, for logits that are not finite, too, and what the observer throws.
void Generate(const BlockList& model, const models::DecoderSpec& spec,
              const std::vector<Prompt>& prompts, const GenerateOptions& options,
              GenerationObserver& observer);

}  // namespace ds::inference
