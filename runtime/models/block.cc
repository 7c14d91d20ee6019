#include "runtime/models/block.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "runtime/base/check.h"
#include "runtime/parallel/expert/expert_layer.h"

namespace ds::models {

FirstValue Block::DescribeFirstValue(const std::string& name, std::int64_t dimensions) const {
  return NormalInit{}.Describe(name, dimensions);
}

checkpoint::Placement Block::DescribePlacement(const std::string&, const at::Tensor& tensor) const {
  checkpoint::Placement placement{.global_shape = tensor.sizes().vec()};
  for (const auto& module : modules(/*include_self=*/false)) {
    const auto* const layer = dynamic_cast<const moe::ExpertLayer*>(module.get());
    if (layer != nullptr && layer->HasApart(tensor)) placement.expert = true;
  }
  return placement;
}

void Block::Initialize(std::uint64_t seed) {
  const c10::NoGradGuard no_grad;
  for (const auto& item : named_parameters()) {
    InitializeRange(FullName(item.key()), seed, /*first=*/0, item.value().view({-1}));
  }
}

void Block::InitializeRange(const std::string& full_name, std::uint64_t seed, std::int64_t first,
                            const at::Tensor& values) const {
  for (const auto& item : named_parameters()) {
    if (FullName(item.key()) != full_name) continue;
    const FirstValue described = DescribeFirstValue(item.key(), item.value().dim());
    const checkpoint::Placement placement = DescribePlacement(item.key(), item.value());
    for (const checkpoint::Stretch& stretch : checkpoint::FindStretches(
             placement.global_shape, {placement.boxes, first, values.numel()})) {
      FillRange(full_name, described, seed,
                {.first = stretch.global,
                 .values = values.view({-1}).narrow(0, stretch.local, stretch.count)});
    }
    return;
  }
  DS_CHECK_MSG(false, "the block has no parameter " + full_name);
}

namespace {

// Returns a tensor with this shape and a storage of 0 bytes.
at::Tensor EmptyOf(at::IntArrayRef shape, const at::TensorOptions& options) {
  const at::Tensor tensor = at::empty({0}, options);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

}  // namespace

void BlockList::Add(BlockFactory make, std::vector<int> also_reads) {
  std::shared_ptr<Block> block = make();
  for (const at::Tensor& parameter : block->parameters()) {
    parameter.set_data(EmptyOf(parameter.sizes(), parameter.options()));
  }
  Add(std::move(block), std::move(also_reads));
  factories_.back() = std::move(make);
}

void BlockList::Add(std::shared_ptr<Block> block, std::vector<int> also_reads) {
  for (int i : also_reads) DS_CHECK_MSG(i >= 0 && i < size(), "also_reads names an earlier block");
  blocks_.push_back(std::move(block));
  factories_.emplace_back();
  also_reads_.push_back(std::move(also_reads));
}

int BlockList::index_in_model(int i) const {
  if (!part_) return i;
  int before = 0;
  for (const BlockRange& range : part_->chunks) {
    if (i < before + range.size()) return range.first + i - before;
    before += range.size();
  }
  DS_CHECK_MSG(false, "the stage's part has fewer blocks");
}

BlockRange BlockList::chunk(int number) const {
  if (!part_) return {0, size()};
  int first = 0;
  for (int i = 0; i < number; ++i) first += part_->chunks.at(static_cast<std::size_t>(i)).size();
  return {first, first + part_->chunks.at(static_cast<std::size_t>(number)).size()};
}

void BlockList::train(bool on) {
  for (const auto& block : blocks_) block->train(on);
}

at::Tensor UnmaterialisedParameter(at::IntArrayRef shape, const at::TensorOptions& options,
                                   bool trained) {
  at::Tensor parameter = EmptyOf(shape, options);
  parameter.set_requires_grad(trained);
  return parameter;
}

void AllocateParameters(Block& block) {
  c10::NoGradGuard no_grad;
  for (at::Tensor& parameter : block.parameters()) {
    parameter.set_data(at::empty(parameter.sizes(), parameter.options()));
  }
}

Bundle RunBlocks(const BlockList& model, Bundle bundle) {
  for (int i = 0; i < model.size(); ++i) {
    bundle.random.block = model.index_in_model(i);
    bundle = model.block(i).forward(std::move(bundle));
  }
  return bundle;
}

}  // namespace ds::models
