#pragma once

// HostClock relates the clock of a host to the one of this machine, as NTP does: the host's time in
// a response lies between the times of the request and of the response. So the error is at most
// half of the round trip, however slow the network is.
//
// The clocks are BootTime() of both machines: nobody can set them.
//
// Pure: the caller passes the time. Not thread-safe.

#include <chrono>
#include <optional>

namespace ds::cli {

// A moment by this machine's clock, between two times.
struct TimeRange {
  std::chrono::nanoseconds earliest{};
  std::chrono::nanoseconds latest{};

  std::chrono::nanoseconds middle() const { return earliest + (latest - earliest) / 2; }
};

class HostClock {
 public:
  using Time = std::chrono::nanoseconds;
  // The range of the difference of the two clocks.
  struct Offset {
    Time lowest{};
    Time highest{};
    Time taken{};  // the time of the response
  };

  // Records a response with the time `host` of its host, to a request of the time `sent`.
  // `received` is the current time.
  void OnAnswer(Time sent, Time host, Time received);
  // Converts a time of the host. nullopt: there was no response yet.
  std::optional<TimeRange> Convert(Time host, Time now) const;
  // Returns the state, for another process of this machine; nullopt: there was no response yet.
  const std::optional<Offset>& offset() const { return best_; }
  // Continues with the state of another process. It has no effect after a response.
  void Restore(const Offset& offset) { best_ = best_.value_or(offset); }

 private:
  // Returns the best offset, as wide as the drift of the clocks since then makes it.
  Offset WidenedBy(Time now) const;

  std::optional<Offset> best_;
};

}  // namespace ds::cli
