// Plays a peer that has proved that it is of the job and then sends anything: frames of groups that
// this rank knows or not, in pieces, out of turn, cut short, or bytes that are no frame, while this
// rank posts, sends, gives up and hears of the end. No byte lands outside of what was posted, and
// frames that fit arrive as they were sent, over one rail and over several.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/net/peer_link.h"

namespace {

using namespace ds::comm;  // NOLINT: the whole file is about it

// One end of a connection that is bytes in memory; what is written beyond its room waits.
class MemoryStream : public PeerStream {
 public:
  using Pipe = std::deque<std::byte>;
  MemoryStream(std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out)
      : PeerStream(ds::UniqueFd()), in_(std::move(in)), out_(std::move(out)) {}

  ds::StatusOr<Handshake> Shake() override { return Handshake::kDone; }
  ssize_t Write(std::span<const std::byte> head, std::span<const std::byte> body) override {
    std::size_t taken = 0;
    for (const auto& part : {head, body}) {
      for (const std::byte each : part) {
        if (out_->size() >= kCapacity) break;
        out_->push_back(each);
        ++taken;
      }
    }
    if (taken == 0 && head.size() + body.size() > 0) return errno = EAGAIN, -1;
    return static_cast<ssize_t>(taken);
  }
  ssize_t Read(std::span<std::byte> to) override {
    if (in_->empty()) return errno = EAGAIN, -1;
    const std::size_t count = std::min(to.size(), in_->size());
    std::copy_n(in_->begin(), count, to.begin());
    in_->erase(in_->begin(), in_->begin() + static_cast<std::ptrdiff_t>(count));
    return static_cast<ssize_t>(count);
  }
  bool HoldsUnread() const override { return false; }

 private:
  static constexpr std::size_t kCapacity = 300'000;
  std::shared_ptr<Pipe> in_, out_;
};

std::pair<PeerRails, PeerRails> MakeEnds(int rails) {
  std::vector<PeerRails::Rail> here, there;
  for (int rail = 0; rail < rails; ++rail) {
    const auto one = std::make_shared<MemoryStream::Pipe>();
    const auto other = std::make_shared<MemoryStream::Pipe>();
    here.push_back({std::make_unique<MemoryStream>(one, other), "rail"});
    there.push_back({std::make_unique<MemoryStream>(other, one), "rail"});
  }
  return {PeerRails(std::move(here)), PeerRails(std::move(there))};
}

class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  bool empty() const { return rest_.empty(); }
  std::uint8_t Next() {
    if (rest_.empty()) return 0;
    const std::uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  std::span<const std::uint8_t> Take(std::size_t count) {
    const auto taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

class Play {
 public:
  Play(std::pair<PeerRails, PeerRails> ends, Script script)
      : link_(std::move(ends.first), "rank 1"), peer_(std::move(ends.second)), script_(script) {}

  void Run() {
    while (!script_.empty() && ok_) {
      Step();
      ok_ = ok_ && link_.Read().ok();
      CheckReceived();
    }
    if (!ok_) link_.GiveUp();
    static_cast<void>(link_.ReadToTheEnd());
  }

 private:
  using Key = std::pair<GroupId, FrameChannel>;
  struct Posted {
    FrameHeader header;
    std::uint64_t number = 0;
    std::vector<std::byte> bytes;
  };

  FrameHeader Header() {
    const std::uint8_t what = script_.Next();
    const std::uint64_t bytes = std::uint64_t{script_.Next()} * (what & 4 ? 1000 : 1);
    return {.bytes = bytes,
            .group = what & 1U,
            .channel = what & 2 ? FrameChannel::kMessage : FrameChannel::kCollective,
            .call = {.kind = CallKind::kAllGather, .count = bytes}};
  }

  void Step() {
    switch (script_.Next() % 10) {
      case 0:
      case 1:
        return Post();
      case 2:
      case 3:
      case 4:
        return SendFull();
      case 5: {  // a promise of other bytes than come
        FrameHeader header = Header();
        header.bytes += std::uint64_t{script_.Next()} << (script_.Next() % 60);
        fits_ = false;
        return Deliver(std::as_bytes(std::span(&header, 1)));
      }
      case 6:
        fits_ = false;
        return Deliver(std::as_bytes(script_.Take(script_.Next())));
      case 7:
        sent_.emplace_back(std::size_t{script_.Next()} * 1000, std::byte{7});
        ok_ = link_.Send({.bytes = sent_.back().size()}, sent_.back()).ok();
        return;
      case 8:
        ok_ = link_.NotifyWaiting().ok() && link_.Write().ok();
        return Drain();
      default:
        return End();
    }
  }

  void Post() {
    Posted& posted = posted_.emplace_back();
    posted.header = Header();
    posted.bytes.resize(posted.header.bytes);
    const auto number = link_.Receive(posted.header, posted.bytes);
    ok_ = number.ok();
    posted.number = ok_ ? *number : ~std::uint64_t{0};
  }

  // All bytes of a queue's frame say which one it is.
  void SendFull() {
    const FrameHeader header = Header();
    const std::uint64_t number = ++frames_[{header.group, header.channel}];
    Deliver(std::as_bytes(std::span(&header, 1)));
    Deliver(std::vector<std::byte>(header.bytes, static_cast<std::byte>(number)));
  }

  void Deliver(std::span<const std::byte> bytes) {
    while (!bytes.empty() && ok_) {
      const ssize_t written = peer_.Write({}, bytes);
      if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
      if (written > 0) continue;
      const std::uint64_t before = link_.bytes_received();
      ok_ = link_.Read().ok();
      // What stays in the sockets until this rank asks for it.
      if (ok_ && link_.bytes_received() == before) ok_ = false;
    }
  }

  void Drain() {
    std::array<std::byte, 4096> some;
    while (peer_.Read(some) > 0) {
    }
  }

  void End() {
    link_.SendEndReason("enough");
    static_cast<void>(link_.Write());
    ok_ = false;
  }

  void CheckReceived() {
    if (!ok_ || !fits_) return;
    for (const Posted& posted : posted_) {
      if (!link_.IsReceived(posted.header, posted.number)) continue;
      for (const std::byte each : posted.bytes) {
        DS_CHECK(each == static_cast<std::byte>(posted.number));
      }
    }
  }

  PeerLink link_;
  PeerRails peer_;
  Script script_;
  std::deque<Posted> posted_;  // stay where they are
  std::deque<std::vector<std::byte>> sent_;
  std::map<Key, std::uint64_t> frames_;
  bool fits_ = true;  // all that has come was frames
  bool ok_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const int rails = 1 + data[0] % 3;
  Play(MakeEnds(rails), Script(data + 1, size - 1)).Run();
  return 0;
}
