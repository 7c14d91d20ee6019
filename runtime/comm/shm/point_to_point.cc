#include <algorithm>
#include <cstring>
#include <string>

#include "runtime/comm/shm/host_group.h"

namespace ds::comm {
namespace {

// A message of nothing still takes one slot: its signature is compared.
std::size_t SlotsFor(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kChannelSlotBytes - 1) / kChannelSlotBytes);
}

}  // namespace

Status HostGroup::Send(const std::byte* data, Elements elements, int peer) {
  const CallSignature call = {
      .kind = CallKind::kSend, .type = elements.type, .root = peer, .count = elements.count};
  Channel& channel = layout_.channel(self_.rank, peer);
  std::uint32_t& sent = sent_[static_cast<std::size_t>(peer)];
  const std::size_t slots = SlotsFor(elements.bytes());
  for (std::size_t i = 0; i < slots; ++i) {
    DS_RETURN_IF_ERROR(wait_.WaitForPeer(channel.read, sent + 1 - kChannelSlots, peer, call));
    const std::size_t slot = sent % kChannelSlots;
    const std::size_t begin = i * kChannelSlotBytes;
    const std::size_t bytes = std::min(kChannelSlotBytes, elements.bytes() - begin);
    if (i == 0) channel.calls[slot] = call;
    if (bytes > 0) std::memcpy(channel.slots[slot], data + begin, bytes);
    channel.written.value.store(++sent, std::memory_order_seq_cst);
    GroupWait::Wake(channel.written);
  }
  return OkStatus();
}

Status HostGroup::Receive(std::byte* data, Elements elements, int peer) {
  const CallSignature call = {
      .kind = CallKind::kRecv, .type = elements.type, .root = peer, .count = elements.count};
  Channel& channel = layout_.channel(peer, self_.rank);
  std::uint32_t& received = received_[static_cast<std::size_t>(peer)];
  const std::size_t slots = SlotsFor(elements.bytes());
  for (std::size_t i = 0; i < slots; ++i) {
    DS_RETURN_IF_ERROR(wait_.WaitForPeer(channel.written, received + 1, peer, call));
    const std::size_t slot = received % kChannelSlots;
    const std::size_t begin = i * kChannelSlotBytes;
    const std::size_t bytes = std::min(kChannelSlotBytes, elements.bytes() - begin);
    const CallSignature& theirs = channel.calls[slot];
    if (i == 0 && (theirs.type != call.type || theirs.count != call.count)) {
      return wait_.FailForMismatch("rank " + std::to_string(peer) + " is in " + Describe(theirs) +
                                   ", rank " + std::to_string(self_.rank) + " in " +
                                   Describe(call));
    }
    if (bytes > 0) std::memcpy(data + begin, channel.slots[slot], bytes);
    channel.read.value.store(++received, std::memory_order_seq_cst);
    GroupWait::Wake(channel.read);
  }
  return OkStatus();
}

}  // namespace ds::comm
