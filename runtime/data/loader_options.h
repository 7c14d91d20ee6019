#pragma once

// LoaderOptions: the settings of a loader. Batch: its output.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "runtime/config/curriculum.h"
#include "runtime/config/dynamic_batching.h"
#include "runtime/data/sampler.h"
#include "runtime/data/token_batches.h"
#include "runtime/plan/data/sample_plan.h"
#include "runtime/plan/mesh/mesh.h"

namespace ds::data {

// Label of tokens that do not contribute to the loss: tokens of a prompt, and the first token of a
// document, which has no predecessor.
inline constexpr std::int64_t kIgnoredLabel = -100;

// SampleName: the index of a source of the loader, and the index of a sample in it.
struct SampleName {
  std::size_t source = 0;
  std::int64_t sample = 0;
};

// Batch: one micro-batch of next-token prediction.
struct TokenBatch {
  at::Tensor inputs;     // [B, S] int64, CPU, contiguous
  at::Tensor labels;     // [B, S] int64: the inputs shifted by one token, or kIgnoredLabel
  at::Tensor documents;  // [B, S] int64, numbers from 0 in a sample; undefined: one each
  std::vector<std::int64_t> lengths = {};  // tokens of each row, without padding at its end
  std::int64_t longest = 0;                // tokens of the longest document, without padding
  std::int64_t tokens = 0;                 // B * S
  std::int64_t position = 0;               // first position in the stream
  std::vector<SampleName> samples = {};    // one per row
  // The batch's position in its step, if batches are made by tokens.
  std::optional<TokenBatches::StepRange> step_part = {};
};

struct LoaderOptions {
  std::int64_t micro_batch = 1;  // B
  std::int64_t seq_len = 256;    // S
  std::int64_t vocab_size = 0;   // ids outside the vocabulary are rejected
  Packing packing = Packing::kStream;
  topology::Member reader;  // among the ranks that have samples of their own
  Sampler::Options order;
  // Shares of several sources (sampler.h). Empty: in proportion to their numbers of samples.
  std::vector<double> weights = {};
  double held_out = 0.0;        // fraction of a source's samples, at its end, not trained on
  bool takes_held_out = false;  // reads only the held-out samples
  // The stream is one pass: later positions are samples that do not contribute to the loss.
  bool once = false;
  // These select the eligible samples of each step of samples_per_step samples; empty: all samples.
  std::vector<config::SampleMetric> metrics = {};
  std::int64_t samples_per_step = 0;
  std::filesystem::path cache = {};  // cache of computed metrics; "": each rank computes them
  // Limits a micro-batch by its number of tokens. Then B and positions of the stream count such
  // batches, and a step has samples_per_step batches. A micro-batch is B of these in sequence,
  // padded to the longest sample.
  std::optional<config::DynamicBatching> batching = {};
  bool pinned = false;  // batches are in page-locked memory, so copies to a GPU are asynchronous
};

}  // namespace ds::data
