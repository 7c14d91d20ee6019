#include "runtime/data/sample_plan.h"

#include <algorithm>

namespace ds::data {

const char* NamePacking(Packing packing) {
  switch (packing) {
    case Packing::kStream:
      return "stream";
    case Packing::kWhole:
      return "whole";
    case Packing::kNone:
      break;
  }
  return "none";
}

StatusOr<Packing> ParsePacking(const std::string& name) {
  for (const Packing packing : {Packing::kStream, Packing::kWhole, Packing::kNone}) {
    if (name == NamePacking(packing)) return packing;
  }
  return InvalidArgumentError("packing '" + name + "' is none of stream, whole, none");
}

SamplePlan SamplePlan::Stream(std::int64_t tokens, std::int64_t length) {
  SamplePlan plan;
  plan.length_ = length;
  plan.samples_ = (tokens - 1) / length;
  return plan;
}

StatusOr<SamplePlan> SamplePlan::Whole(const DocumentIndex& documents, std::int64_t length,
                                       bool one_each) {
  SamplePlan plan;
  plan.length_ = length;
  plan.starts_ = {0};
  std::int64_t begin = 0;  // of what is placed next
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

SampleRange SamplePlan::At(std::int64_t sample) const {
  if (starts_.empty()) return {sample * length_, length_};
  const auto at = static_cast<std::size_t>(sample);
  return {starts_[at], starts_[at + 1] - starts_[at]};
}

}  // namespace ds::data
