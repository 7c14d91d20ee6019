#include "runtime/comm/shm/host_group.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/base/check.h"
#include "runtime/comm/shm/reduce_kernels.h"

namespace ds::comm {
namespace {

std::size_t ChunkBytes(const HostGroupOptions& options) {
  return options.chunk_bytes == 0 ? DefaultChunkBytes(options.self.size) : options.chunk_bytes;
}

// Copies that may be of nothing or onto itself.
void Copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

std::size_t Rounds(std::size_t count, std::size_t per_round) {
  // A collective of nothing still meets its peers, once.
  return std::max<std::size_t>(1, (count + per_round - 1) / per_round);
}

// The elements [begin, begin + count) of one round.
struct Round {
  std::size_t begin;
  std::size_t count;
};

Round RoundOf(std::size_t index, std::size_t per_round, std::size_t total) {
  const std::size_t begin = std::min(total, index * per_round);
  return {.begin = begin, .count = std::min(per_round, total - begin)};
}

}  // namespace

std::size_t DefaultChunkBytes(int size) {
  constexpr std::size_t kAllRanks = 2 * 1024 * 1024;
  const std::size_t even = kAllRanks / static_cast<std::size_t>(std::max(2, size));
  return std::max(kMinChunkBytes, even / kMinChunkBytes * kMinChunkBytes);
}

std::size_t HostGroup::RegionBytes(const HostGroupOptions& options) {
  return GroupLayout::RegionBytes(options.self.size, ChunkBytes(options));
}

HostGroup::HostGroup(std::shared_ptr<SharedRegion> region, const HostGroupOptions& options)
    : region_(std::move(region)),
      layout_(region_->data(), options.self.size, ChunkBytes(options)),
      self_(options.self),
      wait_(layout_, options.self, options.timeout),
      sent_(static_cast<std::size_t>(options.self.size)),
      received_(static_cast<std::size_t>(options.self.size)) {
  DS_CHECK(region_->bytes() >= RegionBytes(options));
  DS_CHECK(self_.size <= kMaxLocalRanks && layout_.chunk_bytes() % kMinChunkBytes == 0);
  if (options.ranks_are_processes) layout_.line(self_.rank).pid.store(getpid());
}

HostGroup::~HostGroup() {
  layout_.line(self_.rank).has_left.store(1, std::memory_order_release);
  GroupWait::Wake(layout_.header().interval);
}

HostGroup::Slice HostGroup::SliceOf(int rank, std::size_t count, std::size_t element_bytes) const {
  const auto ranks = static_cast<std::size_t>(self_.size);
  const std::size_t line = std::max<std::size_t>(1, kCacheLine / element_bytes);
  const std::size_t even = (count + ranks - 1) / ranks;
  const std::size_t length = (even + line - 1) / line * line;  // no cache line has two writers
  const std::size_t begin = std::min(count, static_cast<std::size_t>(rank) * length);
  return {.begin = begin, .end = std::min(count, begin + length)};
}

std::size_t HostGroup::RoundElements(ElementType type, bool shared_out) const {
  const std::size_t parts = shared_out ? static_cast<std::size_t>(self_.size) : 1;
  const std::size_t bytes = layout_.chunk_bytes() / parts / kCacheLine * kCacheLine;
  return bytes / ElementBytes(type);
}

std::byte* HostGroup::Staging(int rank, std::uint64_t interval) const {
  return layout_.staging(rank, static_cast<std::uint32_t>(interval % kStagingBuffers));
}

Status HostGroup::PassBarrier(const CallSignature& call) {
  DS_RETURN_IF_ERROR(wait_.Barrier(interval_ + 1, call));
  ++interval_;
  return OkStatus();
}

// Two copies of the signature suffice: a rank can be at most one collective ahead of a peer that
// has yet to compare.
Status HostGroup::PassFirstBarrier(const CallSignature& call) {
  const std::size_t parity = calls_++ % 2;
  layout_.line(self_.rank).calls[parity] = call;
  DS_RETURN_IF_ERROR(PassBarrier(call));
  const CallSignature& reference = layout_.line(0).calls[parity];
  for (int rank = 1; rank < self_.size; ++rank) {
    const CallSignature& other = layout_.line(rank).calls[parity];
    if (other == reference) continue;
    return wait_.FailForMismatch("the ranks disagree about collective " + std::to_string(calls_) +
                                 ": rank 0 is in " + Describe(reference) + ", rank " +
                                 std::to_string(rank) + " in " + Describe(other));
  }
  return OkStatus();
}

// Runs fill(round, interval) and, one interval later, take(round, interval of its fill).
template <typename Fill, typename Take>
Status HostGroup::TwoStages(const CallSignature& call, std::size_t rounds, Fill fill, Take take) {
  fill(std::size_t{0}, interval_);
  DS_RETURN_IF_ERROR(PassFirstBarrier(call));
  for (std::size_t round = 1; round < rounds; ++round) {
    take(round - 1, interval_ - 1);
    fill(round, interval_);
    DS_RETURN_IF_ERROR(PassBarrier(call));
  }
  take(rounds - 1, interval_ - 1);
  return OkStatus();
}

Status HostGroup::Meet(std::chrono::milliseconds timeout) {
  const std::chrono::milliseconds usual = wait_.timeout();
  wait_.set_timeout(timeout);
  const Status met = Barrier();
  wait_.set_timeout(usual);
  return met.WithContext("waiting for all ranks to join");
}

Status HostGroup::Barrier() { return PassFirstBarrier({.kind = CallKind::kBarrier}); }

Status HostGroup::AllReduce(std::byte* data, Elements elements, ReduceOp op) {
  return ReduceToAllOrRoot(data, elements,
                           {.kind = CallKind::kAllReduce,
                            .type = elements.type,
                            .op = op,
                            .root = -1,
                            .count = elements.count});
}

Status HostGroup::Reduce(std::byte* data, Elements elements, ReduceOp op, int root) {
  return ReduceToAllOrRoot(data, elements,
                           {.kind = CallKind::kReduce,
                            .type = elements.type,
                            .op = op,
                            .root = root,
                            .count = elements.count});
}

Status HostGroup::ReduceToAllOrRoot(std::byte* data, Elements elements, const CallSignature& call) {
  const bool takes_result = call.root < 0 || call.root == self_.rank;
  const std::size_t size = ElementBytes(elements.type);
  const std::size_t per_round = RoundElements(elements.type, /*shared_out=*/false);
  const std::size_t rounds = Rounds(elements.count, per_round);
  std::vector<const std::byte*> sources(static_cast<std::size_t>(self_.size));

  // Copies in what the peers reduce: all but the own slice.
  const auto fill = [&](std::size_t index) {
    const Round round = RoundOf(index, per_round, elements.count);
    const std::byte* from = data + round.begin * size;
    std::byte* to = Staging(self_.rank, interval_);
    const Slice own = SliceOf(self_.rank, round.count, size);
    Copy(to, from, own.begin * size);
    Copy(to + own.end * size, from + own.end * size, (round.count - own.end) * size);
  };
  // Reduces the own slice into the own buffer, where only this rank touches it until the next
  // barrier.
  const auto reduce = [&](std::size_t index) {
    const Round round = RoundOf(index, per_round, elements.count);
    const Slice own = SliceOf(self_.rank, round.count, size);
    for (int rank = 0; rank < self_.size; ++rank) {
      sources[rank] = Staging(rank, interval_ - 1) + own.begin * size;
    }
    std::byte* mine = data + (round.begin + own.begin) * size;
    sources[self_.rank] = mine;
    std::byte* result = Staging(self_.rank, interval_ - 1) + own.begin * size;
    ReduceInRankOrder(result, sources, own.end - own.begin, elements.type, call.op);
    if (takes_result) Copy(mine, result, (own.end - own.begin) * size);
  };
  const auto take = [&](std::size_t index) {
    if (!takes_result) return;
    const Round round = RoundOf(index, per_round, elements.count);
    for (int i = 1; i < self_.size; ++i) {
      const int peer = (self_.rank + i) % self_.size;
      const Slice slice = SliceOf(peer, round.count, size);
      Copy(data + (round.begin + slice.begin) * size,
           Staging(peer, interval_ - 2) + slice.begin * size, (slice.end - slice.begin) * size);
    }
  };

  for (std::size_t step = 0; step < rounds + 2; ++step) {
    if (step >= 2) take(step - 2);
    if (step >= 1 && step <= rounds) reduce(step - 1);
    if (step < rounds) fill(step);
    if (step == 0) {
      DS_RETURN_IF_ERROR(PassFirstBarrier(call));
    } else if (step <= rounds) {
      DS_RETURN_IF_ERROR(PassBarrier(call));
    }
  }
  return OkStatus();
}

Status HostGroup::ReduceScatter(std::byte* output, RankInputs inputs, Elements each, ReduceOp op) {
  const std::size_t size = ElementBytes(each.type);
  const std::size_t per_round = RoundElements(each.type, /*shared_out=*/true);
  const std::size_t part_bytes = per_round * size;
  std::vector<const std::byte*> sources(static_cast<std::size_t>(self_.size));
  const CallSignature call = {
      .kind = CallKind::kReduceScatter, .type = each.type, .op = op, .count = each.count};
  return TwoStages(
      call, Rounds(each.count, per_round),
      [&](std::size_t index, std::uint64_t interval) {
        const Round round = RoundOf(index, per_round, each.count);
        for (int peer = 0; peer < self_.size; ++peer) {
          if (peer == self_.rank) continue;
          Copy(Staging(self_.rank, interval) + peer * part_bytes, inputs[peer] + round.begin * size,
               round.count * size);
        }
      },
      [&](std::size_t index, std::uint64_t interval) {
        const Round round = RoundOf(index, per_round, each.count);
        for (int rank = 0; rank < self_.size; ++rank) {
          sources[rank] = Staging(rank, interval) + self_.rank * part_bytes;
        }
        sources[self_.rank] = inputs[self_.rank] + round.begin * size;
        ReduceInRankOrder(output + round.begin * size, sources, round.count, each.type, op);
      });
}

Status HostGroup::AllGather(RankOutputs outputs, const std::byte* input, Elements each) {
  const std::size_t size = ElementBytes(each.type);
  const std::size_t per_round = RoundElements(each.type, /*shared_out=*/false);
  const CallSignature call = {.kind = CallKind::kAllGather, .type = each.type, .count = each.count};
  return TwoStages(
      call, Rounds(each.count, per_round),
      [&](std::size_t index, std::uint64_t interval) {
        const Round round = RoundOf(index, per_round, each.count);
        const std::byte* from = input + round.begin * size;
        Copy(Staging(self_.rank, interval), from, round.count * size);
        Copy(outputs[self_.rank] + round.begin * size, from, round.count * size);
      },
      [&](std::size_t index, std::uint64_t interval) {
        const Round round = RoundOf(index, per_round, each.count);
        for (int i = 1; i < self_.size; ++i) {
          const int peer = (self_.rank + i) % self_.size;
          Copy(outputs[peer] + round.begin * size, Staging(peer, interval), round.count * size);
        }
      });
}

Status HostGroup::Broadcast(std::byte* data, Elements elements, int root) {
  const std::size_t size = ElementBytes(elements.type);
  const std::size_t per_round = RoundElements(elements.type, /*shared_out=*/false);
  const CallSignature call = {
      .kind = CallKind::kBroadcast, .type = elements.type, .root = root, .count = elements.count};
  return TwoStages(
      call, Rounds(elements.count, per_round),
      [&](std::size_t index, std::uint64_t interval) {
        if (self_.rank != root) return;
        const Round round = RoundOf(index, per_round, elements.count);
        Copy(Staging(root, interval), data + round.begin * size, round.count * size);
      },
      [&](std::size_t index, std::uint64_t interval) {
        if (self_.rank == root) return;
        const Round round = RoundOf(index, per_round, elements.count);
        Copy(data + round.begin * size, Staging(root, interval), round.count * size);
      });
}

Status HostGroup::Gather(RankOutputs outputs, const std::byte* input, Elements each, int root) {
  const std::size_t size = ElementBytes(each.type);
  const std::size_t per_round = RoundElements(each.type, /*shared_out=*/false);
  const CallSignature call = {
      .kind = CallKind::kGather, .type = each.type, .root = root, .count = each.count};
  return TwoStages(
      call, Rounds(each.count, per_round),
      [&](std::size_t index, std::uint64_t interval) {
        const Round round = RoundOf(index, per_round, each.count);
        std::byte* to =
            self_.rank == root ? outputs[root] + round.begin * size : Staging(self_.rank, interval);
        Copy(to, input + round.begin * size, round.count * size);
      },
      [&](std::size_t index, std::uint64_t interval) {
        if (self_.rank != root) return;
        const Round round = RoundOf(index, per_round, each.count);
        for (int i = 1; i < self_.size; ++i) {
          const int peer = (self_.rank + i) % self_.size;
          Copy(outputs[peer] + round.begin * size, Staging(peer, interval), round.count * size);
        }
      });
}

Status HostGroup::Scatter(std::byte* output, RankInputs inputs, Elements each, int root) {
  const std::size_t size = ElementBytes(each.type);
  const std::size_t per_round = RoundElements(each.type, /*shared_out=*/true);
  const std::size_t part_bytes = per_round * size;
  const CallSignature call = {
      .kind = CallKind::kScatter, .type = each.type, .root = root, .count = each.count};
  return TwoStages(
      call, Rounds(each.count, per_round),
      [&](std::size_t index, std::uint64_t interval) {
        if (self_.rank != root) return;
        const Round round = RoundOf(index, per_round, each.count);
        for (int peer = 0; peer < self_.size; ++peer) {
          std::byte* to = peer == root ? output + round.begin * size
                                       : Staging(root, interval) + peer * part_bytes;
          Copy(to, inputs[peer] + round.begin * size, round.count * size);
        }
      },
      [&](std::size_t index, std::uint64_t interval) {
        if (self_.rank == root) return;
        const Round round = RoundOf(index, per_round, each.count);
        Copy(output + round.begin * size, Staging(root, interval) + self_.rank * part_bytes,
             round.count * size);
      });
}

// Every rank learns what the others send, so that all agree on the number of rounds and a receiver
// that expects something else is told.
Status HostGroup::ExchangeCounts(const Parts& parts, std::uint64_t* largest) {
  const CallSignature call = {.kind = CallKind::kAllToAll, .type = parts.type};
  const auto ranks = static_cast<std::size_t>(self_.size);
  std::memcpy(Staging(self_.rank, interval_), parts.input_counts.data(),
              ranks * sizeof(std::uint64_t));
  DS_RETURN_IF_ERROR(PassFirstBarrier(call));
  std::string disagreement;
  for (int peer = 0; peer < self_.size; ++peer) {
    std::vector<std::uint64_t> sends(ranks);
    std::memcpy(sends.data(), Staging(peer, interval_ - 1), ranks * sizeof(std::uint64_t));
    *largest = std::max(*largest, *std::max_element(sends.begin(), sends.end()));
    if (sends[self_.rank] == parts.output_counts[peer]) continue;
    disagreement = "all-to-all: rank " + std::to_string(peer) + " sends " +
                   std::to_string(sends[self_.rank]) + " elements to rank " +
                   std::to_string(self_.rank) + ", which expects " +
                   std::to_string(parts.output_counts[peer]);
  }
  if (!disagreement.empty()) return wait_.FailForMismatch(disagreement);
  return OkStatus();
}

Status HostGroup::AllToAll(const Parts& parts) {
  std::uint64_t largest = 0;
  DS_RETURN_IF_ERROR(ExchangeCounts(parts, &largest));
  const std::size_t size = ElementBytes(parts.type);
  const std::size_t per_round = RoundElements(parts.type, /*shared_out=*/true);
  const std::size_t part_bytes = per_round * size;
  return TwoStages(
      {.kind = CallKind::kAllToAll, .type = parts.type}, Rounds(largest, per_round),
      [&](std::size_t index, std::uint64_t interval) {
        for (int peer = 0; peer < self_.size; ++peer) {
          const Round round = RoundOf(index, per_round, parts.input_counts[peer]);
          std::byte* to = peer == self_.rank ? parts.outputs[peer] + round.begin * size
                                             : Staging(self_.rank, interval) + peer * part_bytes;
          Copy(to, parts.inputs[peer] + round.begin * size, round.count * size);
        }
      },
      [&](std::size_t index, std::uint64_t interval) {
        for (int i = 1; i < self_.size; ++i) {
          const int peer = (self_.rank + i) % self_.size;
          const Round round = RoundOf(index, per_round, parts.output_counts[peer]);
          Copy(parts.outputs[peer] + round.begin * size,
               Staging(peer, interval) + self_.rank * part_bytes, round.count * size);
        }
      });
}

}  // namespace ds::comm
