// HostGroup's collectives that reduce.

#include <algorithm>
#include <vector>

#include "runtime/comm/shm/host_group.h"
#include "runtime/comm/shm/reduce_kernels.h"
#include "runtime/comm/shm/rounds.h"

namespace ds::comm {

HostGroup::Slice HostGroup::SliceOf(int rank, std::size_t count, std::size_t element_bytes) const {
  const auto ranks = static_cast<std::size_t>(self_.size);
  const std::size_t line = std::max<std::size_t>(1, kCacheLine / element_bytes);
  const std::size_t even = (count + ranks - 1) / ranks;
  const std::size_t length = (even + line - 1) / line * line;  // no cache line has two writers
  const std::size_t begin = std::min(count, static_cast<std::size_t>(rank) * length);
  return {.begin = begin, .end = std::min(count, begin + length)};
}

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

  // Copies in the data that peers reduce: all slices except this rank's own.
  const auto fill = [&](std::size_t index) {
    const Round round = RoundOf(index, per_round, elements.count);
    const std::byte* from = data + round.begin * size;
    std::byte* to = Staging(self_.rank, interval_);
    const Slice own = SliceOf(self_.rank, round.count, size);
    Copy(to, from, own.begin * size);
    Copy(to + own.end * size, from + own.end * size, (round.count - own.end) * size);
  };
  // Reduces this rank's slice into its own buffer; no other rank accesses that buffer until the
  // next barrier.
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
  if (self_.size == 1) {
    Copy(output, inputs[0], each.bytes());
    return OkStatus();
  }
  const std::size_t size = ElementBytes(each.type);
  const std::size_t per_round = RoundElements(each.type, /*shared_out=*/true);
  const std::size_t part_bytes = per_round * size;
  std::vector<const std::byte*> sources(static_cast<std::size_t>(self_.size));
  const CallSignature call = {
      .kind = CallKind::kReduceScatter, .type = each.type, .op = op, .count = each.count};
  return RunRounds(
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

}  // namespace ds::comm
