#include "runtime/models/decoder_slice.h"

#include <utility>

namespace ds::models {

std::string DecoderSlice::NameTokenTable() const {
  const std::string base = spec().names.base;
  return (base.empty() ? base : base + ".") + spec().names.tokens + ".weight";
}

checkpoint::Placement DecoderSlice::PlacementOf(const std::string& name,
                                                checkpoint::Shape shape) const {
  checkpoint::Placement placement{.global_shape = std::move(shape)};
  if (!table_stages.empty() && name == NameTokenTable()) placement.stages = table_stages;
  const std::string of_experts = std::string(".") + spec().names.experts + ".";
  placement.expert = experts.size() > 1 && name.find(of_experts) != std::string::npos;
  if (plan->parts() == 1) return placement;
  const auto slice = plan->SliceOf(name);
  if (!slice) {
    placement.copy_axes = placement.copy_axes.With(topology::Axis::kTensor);
    return placement;
  }
  checkpoint::Shape& global = placement.global_shape;
  global[slice->dimension] = slice->extent;
  for (const IndexRange& range : slice->retained) {
    checkpoint::Box box{checkpoint::Shape(global.size(), 0), global};
    box.offset[slice->dimension] = range.first;
    box.shape[slice->dimension] = range.count;
    placement.boxes.push_back(std::move(box));
  }
  return placement;
}

}  // namespace ds::models
