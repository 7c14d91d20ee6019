#include "runtime/comm/shm/host_group.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/base/check.h"

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
      kept_(static_cast<std::size_t>(options.self.size)),
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

}  // namespace ds::comm
