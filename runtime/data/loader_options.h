#pragma once

// LoaderOptions: what a loader is asked for. Batch: what it hands out.

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

// A label that is not learnt: of a prompt, or the first token of a document, which follows nothing.
inline constexpr std::int64_t kIgnoredLabel = -100;

// Names a sample: of which of the loader's sources, from 0 on, and which of it.
struct SampleName {
  std::size_t source = 0;
  std::int64_t sample = 0;
};

// One micro-batch of next-token prediction.
struct Batch {
  at::Tensor inputs;     // [B, S] int64, CPU, contiguous
  at::Tensor labels;     // [B, S] int64: the inputs shifted by one token, or kIgnoredLabel
  at::Tensor documents;  // [B, S] int64, a sample's counted from 0; undefined: one a sample
  std::vector<std::int64_t> lengths = {};  // tokens of each row; padding is behind them
  std::int64_t longest = 0;                // tokens of the longest document; padding does not count
  std::int64_t tokens = 0;                 // B * S
  std::int64_t place = 0;                  // of the stream, its first
  std::vector<SampleName> samples = {};    // a row each
  // Says where it stands in its step, if batches are by tokens.
  std::optional<TokenBatches::StepPart> step_part = {};
};

struct LoaderOptions {
  std::int64_t micro_batch = 1;  // B
  std::int64_t seq_len = 256;    // S
  std::int64_t vocab_size = 0;   // ids outside are refused
  Packing packing = Packing::kStream;
  topology::Member reader;  // among the ranks that have samples of their own
  Sampler::Options order;
  // Say how much each of several sources gives (sampler.h). Empty: by the samples that it has.
  std::vector<double> weights = {};
  double held_out = 0.0;        // the share of a source's samples, from the last on, not trained on
  bool takes_held_out = false;  // it reads those, and no others
  // The stream is one pass: places behind it are samples of which nothing is learnt.
  bool once = false;
  // Say which samples a step has, of so many each; empty: any.
  std::vector<config::SampleMetric> metrics = {};
  std::int64_t samples_per_step = 0;
  std::filesystem::path cache = {};  // of metrics that are computed; "": each rank does
  // Counts what a micro-batch has in tokens: B, and the places of the stream, are then numbers of
  // such batches, samples_per_step of them a step, which a micro-batch has one behind the other,
  // as long as the longest sample among them.
  std::optional<config::DynamicBatching> batching = {};
  bool pinned = false;  // batches lie in page-locked memory, from where copies to a GPU do not wait
};

}  // namespace ds::data
