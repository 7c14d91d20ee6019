#include "runtime/device/copy_streams.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>

namespace ds::device {

CopyEndPtr CopyStreams::TakeAway(at::Tensor from, const at::Tensor& to, LedgerEntry booked) {
  CopyEndPtr end = Take(to, from);
  leaving_bytes_ += static_cast<std::int64_t>(from.nbytes());
  leaving_.push_back({std::move(from), std::move(booked), end});
  while (leaving_bytes_ > most_leaving_bytes_) FreeOldest();
  return end;
}

void CopyStreams::FreeOldest() {
  const Leaving& oldest = leaving_.front();
  Await(*oldest.end);
  leaving_bytes_ -= static_cast<std::int64_t>(oldest.memory.nbytes());
  leaving_.pop_front();
}

void CopyStreams::FreeAll() {
  try {
    while (!leaving_.empty()) FreeOldest();
  } catch (const c10::Error&) {
    // A failed device computes nothing more, and the code that queued the work gets the error.
  }
}

namespace {

struct EventEnd : CopyEnd {
  explicit EventEnd(const c10::Stream& stream) : event(stream.device_type()) {
    event.record(stream);
  }

  c10::Event event;
};

const c10::Event& EventOf(const CopyEnd& end) {
  return static_cast<const EventEnd&>(end).event;  // EventStreams creates no other kind
}

class EventStreams : public CopyStreams {
 public:
  EventStreams(c10::Device device, std::int64_t most_leaving_bytes)
      : CopyStreams(most_leaving_bytes), device_(device) {}
  ~EventStreams() override { FreeAll(); }

  CopyEndPtr Bring(const at::Tensor& to, const at::Tensor& from,
                   const std::vector<CopyEndPtr>& after) override {
    for (const CopyEndPtr& end : after) EventOf(*end).block(streams().coming);
    return Copy(to, from, streams().coming);
  }
  void Await(const CopyEnd& end) override { EventOf(end).block(computing()); }
  void AwaitOnHost(const CopyEnd& end) override { EventOf(end).synchronize(); }
  bool HasEnded(const CopyEnd& end) override { return EventOf(end).query(); }

 protected:
  CopyEndPtr Take(const at::Tensor& to, const at::Tensor& from) override {
    return Copy(to, from, streams().going);
  }

 private:
  struct Both {
    c10::Stream coming, going;
  };

  const Both& streams() {
    if (!streams_) {
      const c10::impl::VirtualGuardImpl type(device_.type());
      streams_ = {type.getStreamFromGlobalPool(device_), type.getStreamFromGlobalPool(device_)};
    }
    return *streams_;
  }
  c10::Stream computing() const {
    return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  }

  CopyEndPtr Copy(const at::Tensor& to, const at::Tensor& from, const c10::Stream& stream) {
    EventEnd(computing()).event.block(stream);
    const c10::StreamGuard guard(stream);
    to.copy_(from, /*non_blocking=*/true);
    return std::make_shared<const EventEnd>(stream);
  }

  const c10::Device device_;
  std::optional<Both> streams_;
};

}  // namespace

std::unique_ptr<CopyStreams> OpenCopyStreams(c10::Device device, std::int64_t most_leaving_bytes) {
  if (device.is_cpu()) return nullptr;
  return std::make_unique<EventStreams>(device, most_leaving_bytes);
}

}  // namespace ds::device
