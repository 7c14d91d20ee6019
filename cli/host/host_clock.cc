#include "cli/host/host_clock.h"

namespace ds::cli {
namespace {

// The kernel corrects the speed of a clock by 500 ppm at most.
constexpr int kTimePerDrift = 2000;

}  // namespace

void HostClock::OnAnswer(Time sent, Time host, Time received) {
  const Offset offset{.lowest = host - received, .highest = host - sent, .taken = received};
  if (!best_.has_value()) {
    best_ = offset;
    return;
  }
  const Offset best = WidenedBy(received);
  const bool is_narrower = offset.highest - offset.lowest <= best.highest - best.lowest;
  // A clock that contradicts its earlier responses has jumped, such as the one of a machine that
  // was stopped by its hypervisor.
  const bool has_jumped = offset.lowest > best.highest || offset.highest < best.lowest;
  if (is_narrower || has_jumped) best_ = offset;
}

HostClock::Offset HostClock::WidenedBy(Time now) const {
  const Time drift = (now - best_->taken) / kTimePerDrift;
  return {
      .lowest = best_->lowest - drift, .highest = best_->highest + drift, .taken = best_->taken};
}

std::optional<TimeRange> HostClock::Convert(Time host, Time now) const {
  if (!best_.has_value()) return std::nullopt;
  const Offset offset = WidenedBy(now);
  return TimeRange{.earliest = host - offset.highest, .latest = host - offset.lowest};
}

}  // namespace ds::cli
