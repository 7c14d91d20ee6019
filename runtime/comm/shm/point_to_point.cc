#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/comm/shm/host_group.h"

namespace ds::comm {
namespace {

// A message of nothing still takes one slot: its signature is compared.
std::size_t SlotsFor(std::size_t bytes, std::size_t slot_bytes) {
  return std::max<std::size_t>(1, (bytes + slot_bytes - 1) / slot_bytes);
}

}  // namespace

// Of ranks that wait here for each other each goes on reading, so that one of them finds room.
Status HostGroup::WaitForRoom(int peer, const CallSignature& call) {
  Channel& channel = layout_.channel(self_.rank, peer);
  const std::uint32_t target = sent_[static_cast<std::size_t>(peer)] + 1 - kChannelSlots;
  return wait_.WaitForPeer(channel.read, target, peer, call, [this] {
    for (int from = 0; from < self_.size; ++from) TakeIn(from);
  });
}

void HostGroup::TakeIn(int peer) {
  const Channel& channel = layout_.channel(peer, self_.rank);
  const std::uint32_t& received = received_[static_cast<std::size_t>(peer)];
  while (GroupWait::HasReached(channel.written, received + 1)) {
    const std::uint32_t slot = received % kChannelSlots;
    const std::byte* const bytes = layout_.slot(peer, self_.rank, slot);
    kept_[static_cast<std::size_t>(peer)].push_back(
        {channel.calls[slot], {bytes, bytes + layout_.slot_bytes()}});
    MarkRead(peer);
  }
}

void HostGroup::MarkRead(int peer) {
  Channel& channel = layout_.channel(peer, self_.rank);
  channel.read.value.store(++received_[static_cast<std::size_t>(peer)], std::memory_order_seq_cst);
  GroupWait::Wake(channel.read);
}

Status HostGroup::Send(const std::byte* data, Elements elements, int peer) {
  const CallSignature call = {
      .kind = CallKind::kSend, .type = elements.type, .root = peer, .count = elements.count};
  Channel& channel = layout_.channel(self_.rank, peer);
  std::uint32_t& sent = sent_[static_cast<std::size_t>(peer)];
  const std::size_t slots = SlotsFor(elements.bytes(), layout_.slot_bytes());
  for (std::size_t i = 0; i < slots; ++i) {
    DS_RETURN_IF_ERROR(WaitForRoom(peer, call));
    const std::uint32_t slot = sent % kChannelSlots;
    const std::size_t begin = i * layout_.slot_bytes();
    const std::size_t bytes = std::min(layout_.slot_bytes(), elements.bytes() - begin);
    if (i == 0) channel.calls[slot] = call;
    if (bytes > 0) std::memcpy(layout_.slot(self_.rank, peer, slot), data + begin, bytes);
    channel.written.value.store(++sent, std::memory_order_seq_cst);
    GroupWait::Wake(channel.written);
  }
  return OkStatus();
}

Status HostGroup::Receive(std::byte* data, Elements elements, int peer) {
  const CallSignature call = {
      .kind = CallKind::kRecv, .type = elements.type, .root = peer, .count = elements.count};
  Channel& channel = layout_.channel(peer, self_.rank);
  const std::uint32_t& received = received_[static_cast<std::size_t>(peer)];
  std::deque<KeptSlot>& kept = kept_[static_cast<std::size_t>(peer)];
  const std::size_t slots = SlotsFor(elements.bytes(), layout_.slot_bytes());
  for (std::size_t i = 0; i < slots; ++i) {
    const bool is_kept = !kept.empty();
    if (!is_kept) {
      DS_RETURN_IF_ERROR(wait_.WaitForPeer(channel.written, received + 1, peer, call));
    }
    const std::uint32_t slot = received % kChannelSlots;
    const std::size_t begin = i * layout_.slot_bytes();
    const std::size_t bytes = std::min(layout_.slot_bytes(), elements.bytes() - begin);
    const CallSignature& theirs = is_kept ? kept.front().first : channel.calls[slot];
    if (i == 0 && (theirs.type != call.type || theirs.count != call.count)) {
      return wait_.FailForMismatch(NameOf(peer) + " is in " + Describe(theirs) + ", " +
                                   NameOf(self_.rank) + " in " + Describe(call));
    }
    const std::byte* const from =
        is_kept ? kept.front().second.data() : layout_.slot(peer, self_.rank, slot);
    if (bytes > 0) std::memcpy(data + begin, from, bytes);
    if (is_kept) {
      kept.pop_front();
    } else {
      MarkRead(peer);
    }
  }
  return OkStatus();
}

}  // namespace ds::comm
