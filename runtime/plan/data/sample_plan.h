#pragma once

// SamplePlan: assigns the tokens of the row to samples. Pure.
//
// Stream samples are consecutive runs of full length, so a sample may begin and end inside a
// document. With the other packings a document that fits into a sample is not split: a sample has
// as many consecutive documents as fit, or a single document, and is then padded. A document longer
// than a sample is split into pieces of the sample's length.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/data/document_index.h"
#include "runtime/plan/data/token_source.h"

namespace ds::data {

enum class Packing { kStream, kDocuments, kNone };

// Parses "stream", "whole" or "none".
StatusOr<Packing> ParsePacking(const std::string& name);
const char* NamePacking(Packing packing);

// Inputs [first, first + count) of a sample. The label of the last input is the token after it, if
// that exists and is in the same document.
struct SampleRange {
  std::int64_t first = 0, count = 0;
};

class SamplePlan {
 public:
  // Plans samples of `length` tokens, each followed by one more token.
  static SamplePlan Stream(std::int64_t tokens, std::int64_t length);

  // Plans samples of unsplit documents, one per sample with `one_each`. Uses 8 bytes of memory per
  // sample.
  static StatusOr<SamplePlan> WholeDocuments(const DocumentIndex& documents, std::int64_t length,
                                             bool one_each);

  std::int64_t samples() const { return samples_; }
  // Requires 0 <= sample < samples().
  SampleRange At(std::int64_t sample) const;

 private:
  std::int64_t length_ = 0;
  std::int64_t samples_ = 0;
  std::vector<std::int64_t> starts_;  // with documents: the start of each sample, and the end
};

// Plans the samples of a source. Refuses packing by documents if the source has none.
StatusOr<SamplePlan> PlanSamples(const TokenSource& source, Packing packing, std::int64_t length);

// Refuses a plan of `tokens` tokens that has no sample.
Status CheckHasSamples(const SamplePlan& plan, std::int64_t tokens, std::int64_t length);

// Returns the training samples or, with `takes_held_out`, the held-out ones: the last ones, with
// the share `held_out` (0: none is held out). Refuses a share that leaves no training samples.
struct ChosenSamples {
  std::int64_t first = 0, count = 0;
};
StatusOr<ChosenSamples> ChooseSamples(const SamplePlan& plan, double held_out, bool takes_held_out);

}  // namespace ds::data
