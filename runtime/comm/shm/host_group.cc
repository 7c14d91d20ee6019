#include "runtime/comm/shm/host_group.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/fnv.h"
#include "runtime/comm/shm/reduce_kernels.h"
#include "runtime/comm/shm/region_exchange.h"
#include "runtime/comm/shm/rounds.h"
#include "runtime/comm/shm/subgroup.h"

namespace ds::comm {
namespace {

std::size_t ChunkBytes(const HostGroupOptions& options) {
  return options.chunk_bytes == 0 ? DefaultChunkBytes(options.self.size) : options.chunk_bytes;
}

std::vector<int> NamesOf(const HostGroupOptions& options) {
  if (!options.names.empty()) return options.names;
  std::vector<int> names(static_cast<std::size_t>(options.self.size));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

}  // namespace

std::size_t DefaultChunkBytes(int size) {
  constexpr std::size_t kAllRanks = std::size_t{2} * 1024 * 1024;
  const std::size_t even = kAllRanks / static_cast<std::size_t>(std::max(2, size));
  return std::max(kMinChunkBytes, even / kMinChunkBytes * kMinChunkBytes);
}

std::size_t HostGroup::RegionBytes(const HostGroupOptions& options) {
  return GroupLayout::RegionBytes(options.self.size, ChunkBytes(options));
}

HostGroup::HostGroup(std::shared_ptr<SharedRegion> region, const HostGroupOptions& options)
    : CpuGroup(options.family ? options.family : std::make_shared<GroupFamily>()),
      region_(std::move(region)),
      options_(options),
      layout_(region_->data(), options.self.size, ChunkBytes(options)),
      self_(options.self),
      wait_(
          layout_, options.self,
          {.timeout = options.timeout,
           .names = NamesOf(options),
           .on_absence = [all = family().get()](const Absence& late) { all->NoteAbsence(late); }}),
      sent_(static_cast<std::size_t>(options.self.size)),
      received_(static_cast<std::size_t>(options.self.size)),
      buffered_(static_cast<std::size_t>(options.self.size)),
      member_(family().get(), this) {
  DS_CHECK(region_->bytes() >= RegionBytes(options));
  DS_CHECK(self_.size <= kMaxLocalRanks && layout_.chunk_bytes() % kMinChunkBytes == 0);
  wait_.set_on_long_wait(options.on_long_wait);
  if (!options.ranks_are_processes) return;
  const ProcessId self = ProcessId::Of(getpid());
  layout_.line(self_.rank).started.store(self.started);
  layout_.line(self_.rank).pid.store(self.pid);
}

HostGroup::~HostGroup() {
  layout_.line(self_.rank).has_left.store(1, std::memory_order_release);
  wait_.RingAll();
}

void HostGroup::ListenForLongWaits(const std::function<void()>& listener) {
  options_.on_long_wait = listener;
  wait_.set_on_long_wait(listener);
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
  DS_RETURN_IF_ERROR(wait_.WaitAtBarrier(interval_ + 1, call));
  ++interval_;
  return OkStatus();
}

// Two copies of the signature suffice: a rank is at most one collective ahead of a peer that has
// not compared yet.
Status HostGroup::PassFirstBarrier(const CallSignature& call) {
  CallSignature mine = call;
  mine.tag = std::exchange(next_tag_, {});
  DS_RETURN_IF_ERROR(wait_.CheckGroup(mine));  // else a peer could mistake this call for the
                                               // previous one
  const std::size_t parity = calls_++ % 2;
  layout_.line(self_.rank).calls[parity] = mine;
  DS_RETURN_IF_ERROR(PassBarrier(mine));
  const CallSignature& reference = layout_.line(0).calls[parity];
  for (int rank = 1; rank < self_.size; ++rank) {
    const CallSignature& other = layout_.line(rank).calls[parity];
    if (other == reference) continue;
    return wait_.FailForMismatch("the ranks disagree about collective " + std::to_string(calls_) +
                                 ": " + wait_.NameOf(0) + " is in " + Describe(reference) + ", " +
                                 wait_.NameOf(rank) + " in " + Describe(other));
  }
  return OkStatus();
}

Status HostGroup::MeetPeers(std::chrono::milliseconds timeout,
                            std::function<Status()> look_around) {
  const std::chrono::milliseconds usual = wait_.timeout();
  wait_.set_timeout(timeout);
  wait_.set_look_around(std::move(look_around));
  const Status met = Barrier();
  wait_.set_timeout(usual);
  wait_.set_look_around({});
  return met.WithContext("waiting for all ranks to join");
}

Status HostGroup::Barrier() { return PassFirstBarrier({.kind = CallKind::kBarrier}); }

// Collectives that only move data.

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
Status HostGroup::ExchangeCounts(const AllToAllBuffers& parts, std::uint64_t* largest) {
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

Status HostGroup::AllToAll(const AllToAllBuffers& parts) {
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

// Collectives that reduce.

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

// Messages.

// Starts a message. An empty message still takes one slot: its signature is compared.
HostGroup::Transfer HostGroup::StartTransfer(CallKind kind, Elements elements, int peer) const {
  const std::size_t slot = layout_.slot_bytes();
  return {.call = {.kind = kind,
                   .type = elements.type,
                   .root = peer,
                   .count = elements.count,
                   .tag = next_tag_},
          .peer = peer,
          .bytes = elements.bytes(),
          .slots = std::max<std::size_t>(1, (elements.bytes() + slot - 1) / slot)};
}

bool HostGroup::HasFreeSlot(int peer) const {
  const std::uint32_t sent = sent_[static_cast<std::size_t>(peer)];
  return HasReached(layout_.channel(self_.rank, peer).read, sent + 1 - kChannelSlots);
}

bool HostGroup::HasUnread(int peer) const {
  const std::uint32_t received = received_[static_cast<std::size_t>(peer)];
  return HasReached(layout_.channel(peer, self_.rank).written, received + 1);
}

void HostGroup::PutSlots(const std::byte* data, Transfer* transfer) {
  const int peer = transfer->peer;
  Channel& channel = layout_.channel(self_.rank, peer);
  std::uint32_t& sent = sent_[static_cast<std::size_t>(peer)];
  for (; !transfer->is_done() && HasFreeSlot(peer); ++transfer->moved) {
    const std::uint32_t slot = sent % kChannelSlots;
    const std::size_t begin = transfer->moved * layout_.slot_bytes();
    const std::size_t bytes = std::min(layout_.slot_bytes(), transfer->bytes - begin);
    if (transfer->moved == 0) channel.calls[slot] = transfer->call;
    if (bytes > 0) std::memcpy(layout_.slot(self_.rank, peer, slot), data + begin, bytes);
    channel.written.store(++sent, std::memory_order_seq_cst);
    wait_.RingBellOf(peer);
  }
}

Status HostGroup::TakeSlots(std::byte* data, Transfer* transfer) {
  const int peer = transfer->peer;
  const CallSignature& call = transfer->call;
  std::deque<BufferedSlot>& buffered = buffered_[static_cast<std::size_t>(peer)];
  for (; !transfer->is_done() && (!buffered.empty() || HasUnread(peer)); ++transfer->moved) {
    const bool is_buffered = !buffered.empty();
    const std::uint32_t slot = received_[static_cast<std::size_t>(peer)] % kChannelSlots;
    const CallSignature& theirs =
        is_buffered ? buffered.front().first : layout_.channel(peer, self_.rank).calls[slot];
    if (transfer->moved == 0 &&
        (theirs.type != call.type || theirs.count != call.count || theirs.tag != call.tag)) {
      return wait_.FailForMismatch(wait_.NameOf(peer) + " is in " + Describe(theirs) + ", " +
                                   wait_.NameOf(self_.rank) + " in " + Describe(call));
    }
    const std::byte* const from =
        is_buffered ? buffered.front().second.data() : layout_.slot(peer, self_.rank, slot);
    const std::size_t begin = transfer->moved * layout_.slot_bytes();
    const std::size_t bytes = std::min(layout_.slot_bytes(), transfer->bytes - begin);
    if (bytes > 0) std::memcpy(data + begin, from, bytes);
    if (is_buffered) {
      buffered.pop_front();
    } else {
      MarkRead(peer);
    }
  }
  return OkStatus();
}

void HostGroup::TakeIn(int peer) {
  while (HasUnread(peer)) {
    const std::uint32_t slot = received_[static_cast<std::size_t>(peer)] % kChannelSlots;
    const std::byte* const bytes = layout_.slot(peer, self_.rank, slot);
    buffered_[static_cast<std::size_t>(peer)].push_back(
        {layout_.channel(peer, self_.rank).calls[slot], {bytes, bytes + layout_.slot_bytes()}});
    MarkRead(peer);
  }
}

void HostGroup::MarkRead(int peer) {
  std::uint32_t& received = received_[static_cast<std::size_t>(peer)];
  layout_.channel(peer, self_.rank).read.store(++received, std::memory_order_seq_cst);
  wait_.RingBellOf(peer);
}

// Waits until a transfer can proceed. Ranks that wait here for a free slot keep reading from all
// peers, so at least one rank gets a free slot.
Status HostGroup::AwaitChannels(const Transfer& outgoing, const Transfer& incoming) {
  std::array<int, 2> peers = {};
  std::size_t count = 0;
  if (!outgoing.is_done()) peers[count++] = outgoing.peer;
  if (!incoming.is_done()) peers[count++] = incoming.peer;
  const auto has_news = [&] {
    if (!outgoing.is_done() && HasFreeSlot(outgoing.peer)) return true;
    if (outgoing.is_done()) return HasUnread(incoming.peer);
    for (int from = 0; from < self_.size; ++from) {
      if (HasUnread(from)) return true;
    }
    return false;
  };
  const CallSignature& call = outgoing.is_done() ? incoming.call : outgoing.call;
  DS_RETURN_IF_ERROR(wait_.WaitForPeers(std::span(peers).first(count), call, has_news));
  for (int from = 0; !outgoing.is_done() && from < self_.size; ++from) {
    if (incoming.is_done() || from != incoming.peer) TakeIn(from);
  }
  return OkStatus();
}

Status HostGroup::SendReceive(const OutgoingMessage& outgoing, const IncomingMessage& incoming) {
  Transfer out = StartTransfer(CallKind::kSend, outgoing.elements, outgoing.peer);
  Transfer in = StartTransfer(CallKind::kRecv, incoming.elements, incoming.peer);
  next_tag_ = {};
  DS_RETURN_IF_ERROR(wait_.CheckGroup(in.call));
  while (true) {
    PutSlots(outgoing.data, &out);
    DS_RETURN_IF_ERROR(TakeSlots(incoming.data, &in));
    if (out.is_done() && in.is_done()) return OkStatus();
    DS_RETURN_IF_ERROR(AwaitChannels(out, in));
  }
}

Status HostGroup::Send(const std::byte* data, Elements elements, int peer) {
  Transfer out = StartTransfer(CallKind::kSend, elements, peer);
  next_tag_ = {};
  DS_RETURN_IF_ERROR(wait_.CheckGroup(out.call));
  for (PutSlots(data, &out); !out.is_done(); PutSlots(data, &out)) {
    DS_RETURN_IF_ERROR(AwaitChannels(out, {}));
  }
  return OkStatus();
}

Status HostGroup::Receive(std::byte* data, Elements elements, int peer) {
  Transfer in = StartTransfer(CallKind::kRecv, elements, peer);
  next_tag_ = {};
  DS_RETURN_IF_ERROR(wait_.CheckGroup(in.call));
  while (true) {
    DS_RETURN_IF_ERROR(TakeSlots(data, &in));
    if (in.is_done()) return OkStatus();
    DS_RETURN_IF_ERROR(AwaitChannels({}, in));
  }
}

// Subgroups: each has its own shared memory, which its ranks exchange at a separate meeting.

StatusOr<std::unique_ptr<HostGroup>> HostGroup::MakeHostSubgroup(const std::string& name,
                                                                 const std::vector<int>& members) {
  const auto self = std::find(members.begin(), members.end(), self_.rank);
  DS_CHECK(self != members.end() && std::is_sorted(members.begin(), members.end()));
  HostGroupOptions options = options_;
  options.self = {.rank = static_cast<int>(self - members.begin()),
                  .size = static_cast<int>(members.size())};
  options.names.clear();
  for (const int member : members) options.names.push_back(wait_.NumberOf(member));
  options.family = family();
  // The name has the first member's number, so ranks with the same name but other members meet
  // elsewhere.
  options.meeting = "dsrun-group/" + std::to_string(HashFnv1a(options_.meeting + "/" + name)) +
                    "/" + std::to_string(options.names.front());
  const std::size_t bytes = RegionBytes(options);
  if (members.size() == 1) {
    DS_ASSIGN_OR_RETURN(SharedRegion region, SharedRegion::Private(bytes));
    return std::make_unique<HostGroup>(std::make_shared<SharedRegion>(std::move(region)), options);
  }
  const CallSignature call = JoinCall(name, options.names);
  const Rendezvous rendezvous = {
      .name = options.meeting,
      .self = options.self,
      .timeout = options.timeout,
      .purpose = call,
      .names = options.names,
      .look_around = [&] { return wait_.CheckForFailure(members, call); }};
  StatusOr<SharedRegion> region = ExchangeRegion(rendezvous, bytes);
  if (!region.ok()) return region.status().WithContext(Describe(call));
  auto group = std::make_unique<HostGroup>(
      std::make_shared<SharedRegion>(std::move(region).value()), options);
  DS_RETURN_IF_ERROR(group->MeetPeers(options.timeout, rendezvous.look_around));
  return group;
}

StatusOr<std::unique_ptr<CpuGroup>> HostGroup::MakeSubgroup(const std::string& name,
                                                            const std::vector<int>& members) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> group, MakeHostSubgroup(name, members));
  return std::unique_ptr<CpuGroup>(std::move(group));
}

}  // namespace ds::comm
