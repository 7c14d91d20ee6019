#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "runtime/comm/shm/host_group.h"

namespace ds::comm {

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

bool HostGroup::HasRoom(int peer) const {
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
  for (; !transfer->is_done() && HasRoom(peer); ++transfer->moved) {
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
  std::deque<KeptSlot>& kept = kept_[static_cast<std::size_t>(peer)];
  for (; !transfer->is_done() && (!kept.empty() || HasUnread(peer)); ++transfer->moved) {
    const bool is_kept = !kept.empty();
    const std::uint32_t slot = received_[static_cast<std::size_t>(peer)] % kChannelSlots;
    const CallSignature& theirs =
        is_kept ? kept.front().first : layout_.channel(peer, self_.rank).calls[slot];
    if (transfer->moved == 0 &&
        (theirs.type != call.type || theirs.count != call.count || theirs.tag != call.tag)) {
      return wait_.FailForMismatch(wait_.NameOf(peer) + " is in " + Describe(theirs) + ", " +
                                   wait_.NameOf(self_.rank) + " in " + Describe(call));
    }
    const std::byte* const from =
        is_kept ? kept.front().second.data() : layout_.slot(peer, self_.rank, slot);
    const std::size_t begin = transfer->moved * layout_.slot_bytes();
    const std::size_t bytes = std::min(layout_.slot_bytes(), transfer->bytes - begin);
    if (bytes > 0) std::memcpy(data + begin, from, bytes);
    if (is_kept) {
      kept.pop_front();
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
    kept_[static_cast<std::size_t>(peer)].push_back(
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
    if (!outgoing.is_done() && HasRoom(outgoing.peer)) return true;
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

}  // namespace ds::comm
