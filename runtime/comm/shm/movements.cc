// HostGroup's collectives that only move data.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/comm/shm/host_group.h"
#include "runtime/comm/shm/rounds.h"

namespace ds::comm {

Status HostGroup::AllGather(RankOutputs outputs, const std::byte* input, Elements each) {
  if (self_.size == 1) {
    Copy(outputs[0], input, each.bytes());
    return OkStatus();
  }
  const std::size_t size = ElementBytes(each.type);
  const std::size_t per_round = RoundElements(each.type, /*shared_out=*/false);
  const CallSignature call = {.kind = CallKind::kAllGather, .type = each.type, .count = each.count};
  return RunRounds(
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
  if (self_.size == 1) return OkStatus();
  const std::size_t size = ElementBytes(elements.type);
  const std::size_t per_round = RoundElements(elements.type, /*shared_out=*/false);
  const CallSignature call = {
      .kind = CallKind::kBroadcast, .type = elements.type, .root = root, .count = elements.count};
  return RunRounds(
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
  if (self_.size == 1) {
    Copy(outputs[0], input, each.bytes());
    return OkStatus();
  }
  const std::size_t size = ElementBytes(each.type);
  const std::size_t per_round = RoundElements(each.type, /*shared_out=*/false);
  const CallSignature call = {
      .kind = CallKind::kGather, .type = each.type, .root = root, .count = each.count};
  return RunRounds(
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
  if (self_.size == 1) {
    Copy(output, inputs[0], each.bytes());
    return OkStatus();
  }
  const std::size_t size = ElementBytes(each.type);
  const std::size_t per_round = RoundElements(each.type, /*shared_out=*/true);
  const std::size_t part_bytes = per_round * size;
  const CallSignature call = {
      .kind = CallKind::kScatter, .type = each.type, .root = root, .count = each.count};
  return RunRounds(
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

// Exchanges the ranks' send counts, so that all agree on the number of rounds and a receiver with
// other expectations gets an error.
Status HostGroup::ExchangeCounts(const AllToAllParts& parts, std::uint64_t* largest) {
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
    disagreement = "all-to-all: " + wait_.NameOf(peer) + " sends " +
                   std::to_string(sends[self_.rank]) + " elements to " + wait_.NameOf(self_.rank) +
                   ", which expects " + std::to_string(parts.output_counts[peer]);
  }
  if (!disagreement.empty()) return wait_.FailForMismatch(disagreement);
  return OkStatus();
}

Status HostGroup::AllToAll(const AllToAllParts& parts) {
  std::uint64_t largest = 0;
  DS_RETURN_IF_ERROR(ExchangeCounts(parts, &largest));
  const std::size_t size = ElementBytes(parts.type);
  const std::size_t per_round = RoundElements(parts.type, /*shared_out=*/true);
  const std::size_t part_bytes = per_round * size;
  return RunRounds(
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
