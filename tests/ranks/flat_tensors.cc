#include "tests/ranks/flat_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ds::checkpoint {
namespace {

std::int64_t NumElements(const std::vector<std::int64_t>& shape) {
  return ElementCount(shape).value();
}

// All elements of tensor number `index`, shaped.
at::Tensor Whole(const TensorSpec& spec, std::size_t index, int salt) {
  const std::int64_t count = NumElements(spec.shape);
  const at::Tensor values =
      at::arange(count, at::kLong).add(static_cast<std::int64_t>(index) * 7 + salt).remainder(251);
  return values.to(spec.dtype).reshape(spec.shape);
}

// This rank's columns [first, first + count) of the last dimension.
Share Columns(const TensorSpec& spec, int rank, int world_size) {
  return ShareOf(spec.shape.back(), rank, world_size);
}

}  // namespace

FlatTensors::FlatTensors(std::vector<TensorSpec> specs, Holding holding, int rank, int world_size)
    : specs_(std::move(specs)), holding_(holding), rank_(rank), world_size_(world_size) {
  for (const TensorSpec& spec : specs_) {
    TensorShard shard{.name = spec.name, .placement = {.global_shape = spec.shape}};
    const std::int64_t elements = NumElements(spec.shape);
    std::int64_t held = elements;
    if (holding_ == Holding::kFlatShards) {
      const std::int64_t each = (elements + world_size_ - 1) / world_size_;
      shard.flat_start = std::min(elements, each * rank_);
      held = std::min(elements, each * (rank_ + 1)) - shard.flat_start;
    } else if (holding_ == Holding::kColumns && !spec.shape.empty()) {
      const Share columns = Columns(spec, rank_, world_size_);
      Box box{std::vector<std::int64_t>(spec.shape.size(), 0), spec.shape};
      box.offset.back() = columns.first;
      box.shape.back() = columns.count;
      held = NumElements(box.shape);
      shard.placement.boxes = {std::move(box)};
    } else {
      shard.replica = {rank_, world_size_};
    }
    held_.push_back(at::empty({held}, spec.dtype));
    shard.source = SourceOf(held_.back());
    shards_.push_back(std::move(shard));
  }
  Clear();
}

std::vector<at::Tensor> FlatTensors::ExpectedParts(int salt) const {
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    at::Tensor full = Whole(specs_[i], i, salt);
    if (!shards_[i].placement.boxes.empty()) {
      const Share columns = Columns(specs_[i], rank_, world_size_);
      full = full.narrow(-1, columns.first, columns.count);
    }
    parts.push_back(full.reshape({-1}).narrow(0, shards_[i].flat_start, held_[i].numel()));
  }
  return parts;
}

void FlatTensors::Fill(int salt) {
  const std::vector<at::Tensor> expected = ExpectedParts(salt);
  for (std::size_t i = 0; i < held_.size(); ++i) held_[i].copy_(expected[i]);
  salt_ = salt;
}

void FlatTensors::Clear() {
  for (const at::Tensor& held : held_) held.fill_(-1);
  salt_ = -1;
}

void FlatTensors::ExpectFilled(int salt) const {
  const std::vector<at::Tensor> expected = ExpectedParts(salt);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    EXPECT_TRUE(at::equal(held_[i], expected[i])) << specs_[i].name << " of rank " << rank_;
  }
  EXPECT_EQ(salt_, salt);
}

void FlatTensors::AddShards(std::vector<TensorShard>* shards) {
  shards->insert(shards->end(), shards_.begin(), shards_.end());
}

Status FlatTensors::LoadState(const nlohmann::json& state) {
  salt_ = state.at("salt").get<int>();
  return OkStatus();
}

}  // namespace ds::checkpoint
