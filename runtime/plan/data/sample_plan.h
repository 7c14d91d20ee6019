#pragma once

// SamplePlan: the tokens of the row that make each sample. Pure.
//
// Samples of a stream are cut where they are full, so that one may begin and end inside of a
// document. Otherwise no document is cut that fits into a sample: as many as fit lie one behind the
// other in their order, or one has a sample to itself, and what remains is padding. A document that
// is longer than a sample is cut into pieces of the sample's length.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/data/document_index.h"
#include "runtime/plan/data/token_source.h"

namespace ds::data {

enum class Packing { kStream, kWhole, kNone };

// Those are "stream", "whole" and "none".
StatusOr<Packing> ParsePacking(const std::string& name);
const char* NamePacking(Packing packing);

// Inputs [first, first + count) of a sample. The label of the last is the token behind it, if that
// is there and of the same document.
struct SampleRange {
  std::int64_t first = 0, count = 0;
};

class SamplePlan {
 public:
  // Samples of `length` that have a token behind them.
  static SamplePlan Stream(std::int64_t tokens, std::int64_t length);

  // Whole documents; `one_each` gives each a sample. Eight bytes a sample stay in memory.
  static StatusOr<SamplePlan> Whole(const DocumentIndex& documents, std::int64_t length,
                                    bool one_each);

  std::int64_t samples() const { return samples_; }
  // Requires 0 <= sample < samples().
  SampleRange At(std::int64_t sample) const;

 private:
  std::int64_t length_ = 0;
  std::int64_t samples_ = 0;
  std::vector<std::int64_t> starts_;  // of whole documents: where samples begin, and the end
};

// Plans the samples of a source. Refuses packing by documents where they are not known.
StatusOr<SamplePlan> PlanSamples(const TokenSource& source, Packing packing, std::int64_t length);

// Refuses a plan of so many tokens that has no sample.
Status CheckHasSamples(const SamplePlan& plan, std::int64_t tokens, std::int64_t length);

// Finds the samples that are trained on, or those that are held out: the last ones, by their share
// (0: there are none, and all are trained on). Refuses a share that leaves none to train on.
struct SamplePart {
  std::int64_t first = 0, count = 0;
};
StatusOr<SamplePart> ChooseSamples(const SamplePlan& plan, double held_out, bool takes_held_out);

}  // namespace ds::data
