#include "runtime/plan/data/sample_plan.h"

#include <algorithm>
#include <cmath>

namespace ds::data {

const char* NamePacking(Packing packing) {
  switch (packing) {
    case Packing::kStream:
      return "stream";
    case Packing::kDocuments:
      return "whole";
    case Packing::kNone:
      break;
  }
  return "none";
}

StatusOr<Packing> ParsePacking(const std::string& name) {
  for (const Packing packing : {Packing::kStream, Packing::kDocuments, Packing::kNone}) {
    if (name == NamePacking(packing)) return packing;
  }
  return InvalidArgumentError("packing '" + name + "' is not one of stream, whole, none");
}

SamplePlan SamplePlan::Stream(std::int64_t tokens, std::int64_t length) {
  SamplePlan plan;
  plan.length_ = length;
  plan.samples_ = (tokens - 1) / length;
  return plan;
}

StatusOr<SamplePlan> SamplePlan::WholeDocuments(const DocumentIndex& documents, std::int64_t length,
                                                bool one_each) {
  SamplePlan plan;
  plan.length_ = length;
  plan.starts_ = {0};
  std::int64_t begin = 0;  // of the next piece
  DS_RETURN_IF_ERROR(documents.ForEachEnd([&](std::int64_t end) {
    while (begin < end) {
      const std::int64_t piece = std::min(end - begin, length);
      const std::int64_t taken = begin - plan.starts_.back();
      if (taken > 0 && (one_each || taken + piece > length)) plan.starts_.push_back(begin);
      begin += piece;
    }
  }));
  plan.starts_.push_back(begin);
  plan.samples_ = begin == 0 ? 0 : std::ssize(plan.starts_) - 1;
  return plan;
}

StatusOr<SamplePlan> PlanSamples(const TokenSource& source, Packing packing, std::int64_t length) {
  if (packing == Packing::kStream) return SamplePlan::Stream(source.size(), length);
  if (!source.has_documents()) {
    return InvalidArgumentError(
        "packing by documents (--packing) needs tokenized texts: bytes and .bin files do not mark "
        "the ends of documents");
  }
  return SamplePlan::WholeDocuments(source.documents(), length,
                                    /*one_each=*/packing == Packing::kNone);
}

Status CheckHasSamples(const SamplePlan& plan, std::int64_t tokens, std::int64_t length) {
  if (plan.samples() > 0) return OkStatus();
  return InvalidArgumentError("the data has " + std::to_string(tokens) +
                              " tokens, one sample of seq_len " + std::to_string(length) +
                              " needs " + std::to_string(length + 1));
}

StatusOr<ChosenSamples> ChooseSamples(const SamplePlan& plan, double held_out,
                                      bool takes_held_out) {
  const std::int64_t all = plan.samples();
  if (held_out == 0.0) return ChosenSamples{0, all};
  const double share = std::round(held_out * static_cast<double>(all));
  const auto held = std::max<std::int64_t>(1, static_cast<std::int64_t>(share));
  if (held >= all) {
    return InvalidArgumentError("the data has " + std::to_string(all) +
                                " samples, and none would be left to train on");
  }
  return takes_held_out ? ChosenSamples{all - held, held} : ChosenSamples{0, all - held};
}

SampleRange SamplePlan::At(std::int64_t sample) const {
  if (starts_.empty()) return {sample * length_, length_};
  const auto at = static_cast<std::size_t>(sample);
  return {starts_[at], starts_[at + 1] - starts_[at]};
}

}  // namespace ds::data
