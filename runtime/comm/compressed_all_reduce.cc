#include "runtime/comm/compressed_all_reduce.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numeric>
#include <string_view>

#include "runtime/base/check.h"

namespace ds::comm {
namespace {

constexpr std::int64_t kBits = 8;
constexpr std::string_view kTag = "signs and scales of a mean";

// Returns 128, 64, ..., 1: the first element is the highest bit.
at::Tensor BitValues(const at::Tensor& like) {
  const at::Tensor shifts = at::arange(kBits - 1, -1, -1, like.options().dtype(at::kByte));
  return at::bitwise_left_shift(at::ones({1}, shifts.options()), shifts);
}

// Packs 8 elements into one byte.
at::Tensor Packed(const at::Tensor& positive) {
  return positive.view({-1, kBits})
      .to(at::kByte)
      .mul_(BitValues(positive))
      .sum(1, false, at::kByte);
}

// Returns -1 or 1 for every bit; the last dimension becomes 8 times as long.
at::Tensor Signs(const at::Tensor& packed) {
  const at::Tensor bits = packed.unsqueeze(-1).bitwise_and(BitValues(packed)).ne(0);
  return bits.to(at::kFloat).mul_(2.0).sub_(1.0).flatten(-2);
}

// Replaces `values` by the error of keeping only their signs and the returned scale.
at::Tensor SplitOffScale(const at::Tensor& values, const at::Tensor& positive) {
  const at::Tensor scale =
      at::linalg_vector_norm(values).div_(std::sqrt(static_cast<double>(values.numel())));
  values.sub_(positive.to(at::kFloat).mul_(2.0).sub_(1.0).mul_(scale));
  return scale;
}

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

CompressedAllReduce::CompressedAllReduce(Communicator& world, device::MemoryLedger* ledger)
    : world_(world), ledger_(ledger) {}

std::int64_t CompressedAllReduce::PaddedNumel(std::int64_t numel) const {
  const std::int64_t ranks = world_.size();
  return RoundUp(numel, ranks * std::lcm(ranks, kBits));
}

void CompressedAllReduce::ForgetErrors() {
  worker_error_ = server_error_ = at::Tensor();
  entry_.Reset();
  layouts_.clear();
}

void CompressedAllReduce::LayOutBuffers(const std::vector<at::Tensor>& buffers) {
  const std::int64_t ranks = world_.size();
  std::int64_t worker = 0;
  std::int64_t server = 0;
  for (const at::Tensor& buffer : buffers) {
    BufferLayout layout{.numel = buffer.numel(),
                        .padded = PaddedNumel(buffer.numel()),
                        .worker_offset = worker,
                        .server_offset = server};
    layout.part = layout.padded / ranks;
    worker += layout.padded;
    server += layout.part;
    layouts_.push_back(layout);
  }
  bit_bytes_ = server / kBits;
  const auto options = at::TensorOptions(at::kFloat).device(world_.device());
  worker_error_ = at::zeros({worker}, options);
  server_error_ = at::zeros({server}, options);
  entry_ = device::LedgerEntry(
      ledger_, device::MemoryUse::kOptimizerState, device::TierOf(world_.device().is_cpu()),
      static_cast<std::int64_t>(worker_error_.nbytes() + server_error_.nbytes()));
}

at::Tensor CompressedAllReduce::CompressForServers(const std::vector<at::Tensor>& buffers) {
  const std::int64_t ranks = world_.size();
  const auto count = static_cast<std::int64_t>(layouts_.size());
  const at::Tensor scales = at::empty({count}, worker_error_.options());
  const at::Tensor rows = at::empty({ranks, bit_bytes_ + count * std::int64_t{sizeof(float)}},
                                    scales.options().dtype(at::kByte));
  for (std::int64_t i = 0; i < count; ++i) {
    const BufferLayout& layout = layouts_[static_cast<std::size_t>(i)];
    const at::Tensor values = worker_error_.narrow(0, layout.worker_offset, layout.padded);
    values.narrow(0, 0, layout.numel).add_(buffers[static_cast<std::size_t>(i)].flatten());
    const at::Tensor positive = values.ge(0);
    scales.select(0, i).copy_(SplitOffScale(values, positive));
    rows.narrow(1, layout.server_offset / kBits, layout.part / kBits)
        .copy_(Packed(positive).view({ranks, -1}));
  }
  rows.narrow(1, bit_bytes_, rows.size(1) - bit_bytes_).copy_(scales.view(at::kByte));
  return rows;
}

at::Tensor CompressedAllReduce::ScalesOf(const at::Tensor& rows) const {
  const at::Tensor bytes = rows.narrow(1, bit_bytes_, rows.size(1) - bit_bytes_);
  return bytes.clone(at::MemoryFormat::Contiguous).view(at::kFloat);
}

at::Tensor CompressedAllReduce::CompressMean(const at::Tensor& received) {
  const at::Tensor shares = ScalesOf(received).mul_(1.0 / world_.size());
  const at::Tensor row = at::empty({received.size(1)}, received.options());
  const at::Tensor scales = at::empty({shares.size(1)}, shares.options());
  for (std::int64_t i = 0; i < shares.size(1); ++i) {
    const BufferLayout& layout = layouts_[static_cast<std::size_t>(i)];
    const at::Tensor bits = received.narrow(1, layout.server_offset / kBits, layout.part / kBits);
    const at::Tensor error = server_error_.narrow(0, layout.server_offset, layout.part);
    error.add_(Signs(bits).mul_(shares.narrow(1, i, 1)).sum(0));
    const at::Tensor positive = error.ge(0);
    scales.select(0, i).copy_(SplitOffScale(error, positive));
    row.narrow(0, layout.server_offset / kBits, layout.part / kBits).copy_(Packed(positive));
  }
  row.narrow(0, bit_bytes_, row.numel() - bit_bytes_).copy_(scales.view(at::kByte));
  return row;
}

void CompressedAllReduce::Expand(const at::Tensor& rows,
                                 const std::vector<at::Tensor>& buffers) const {
  const at::Tensor scales = ScalesOf(rows);
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    const BufferLayout& layout = layouts_[i];
    const at::Tensor bits = rows.narrow(1, layout.server_offset / kBits, layout.part / kBits);
    const at::Tensor values = Signs(bits).mul_(scales.narrow(1, static_cast<std::int64_t>(i), 1));
    buffers[i].copy_(values.flatten().narrow(0, 0, layout.numel).view(buffers[i].sizes()));
  }
}

void CompressedAllReduce::Average(const std::vector<at::Tensor>& buffers) {
  if (world_.size() == 1) return;
  if (!worker_error_.defined()) LayOutBuffers(buffers);
  DS_CHECK(buffers.size() == layouts_.size());
  const at::Tensor sent = CompressForServers(buffers);
  const at::Tensor received = at::empty_like(sent);
  world_.AllToAll(received, sent, {}, {}, kTag);
  const at::Tensor& all = sent;  // its bytes have been sent
  world_.AllGather(all.view({-1}), CompressMean(received), kTag);
  Expand(all, buffers);
}

}  // namespace ds::comm
