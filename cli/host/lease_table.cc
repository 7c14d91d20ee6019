#include "cli/host/lease_table.h"

#include <algorithm>
#include <utility>

#include "proto/lease.h"

namespace ds::cli {
namespace {

// A daemon that hears nothing over its connections when they have ended takes this process for
// ended, too (daemon/network/network_listener.h): then not the lease, but its patience counts.
constexpr int kRenewalsPerLease = 6;
constexpr std::chrono::milliseconds kLongestInterval{1500};
constexpr int kLooksPerRenewal = 4;  // and so soon a renewal that failed is tried again
// A daemon whose lease is over ends its ranks, and answers meanwhile.
constexpr std::chrono::seconds kLongestEnd =
    dsrun::v1::kLongestLeaseGrace + dsrun::v1::kLeaseKillAfter;

}  // namespace

LeaseTable::LeaseTable(Time lease)
    : lease_(lease),
      renewal_interval_(std::min<Time>(lease / kRenewalsPerLease, kLongestInterval)),
      look_interval_(renewal_interval_ / kLooksPerRenewal),
      pauses_(2 * lease) {}

void LeaseTable::Add(int number, Time now, bool is_of_this_machine) {
  hosts_.emplace(number, Host{.liveness = HostLiveness(LivenessThresholds::OfLease(lease_), now),
                              .is_of_this_machine = is_of_this_machine});
}

std::vector<int> LeaseTable::TakeDue(Time now) {
  std::vector<int> due;
  for (auto& [number, host] : hosts_) {
    if (host.renewing || host.told == HostGrade::kLost || now < host.next_renewal) continue;
    host.renewing = true;
    host.renewal_sent = now;
    host.next_renewal = now + renewal_interval_;
    due.push_back(number);
  }
  return due;
}

void LeaseTable::OnRenewed(int number, const Status& answer, Time now) {
  Host& host = hosts_.at(number);
  host.renewing = false;
  if (answer.ok()) {
    host.liveness.OnAnswer(now);
    if (host.renewal_sent >= host.outlives_pause_at) host.pause.reset();
    // The first answer is there to be named by the next renewal: only then the lease is longer.
    if (!std::exchange(host.has_answered, true)) host.next_renewal = now;
  } else {
    host.liveness.OnFailedRenewal(answer.message());
    host.next_renewal = now + look_interval_;
  }
}

std::vector<HostChange> LeaseTable::TakeChanges(Time now, std::int64_t unix_nanos) {
  std::vector<HostChange> changes;
  for (auto& [number, host] : hosts_) {
    if (host.told == HostGrade::kLost) continue;
    const HostGrade grade = host.liveness.Grade(now);
    if (grade != HostGrade::kAlive) host.last_silence = host.liveness.silence(now);
    if (grade != host.told) changes.push_back(MakeChange(number, grade, now, unix_nanos));
  }
  return changes;
}

HostChange LeaseTable::MakeChange(int number, HostGrade grade, Time now, std::int64_t unix_nanos) {
  Host& host = hosts_.at(number);
  return {.host = number,
          .grade = grade,
          .before = std::exchange(host.told, grade),
          .silence = host.last_silence,
          .last_sign_unix_nanos = unix_nanos - host.liveness.silence(now).count(),
          .evidence = host.liveness.Evidence(),
          .probe = {},
          .is_of_this_machine = host.is_of_this_machine};
}

std::vector<int> LeaseTable::present() const {
  std::vector<int> numbers;
  for (const auto& [number, host] : hosts_) {
    if (host.told != HostGrade::kLost) numbers.push_back(number);
  }
  return numbers;
}

void LeaseTable::EndWait(const OwnPauses::Clocks& now) {
  const OwnPause pause = pauses_.EndWait(now);
  if (CostsLeases(pause)) RememberPause(pause, now.awake);
  // The clock of silence stands still while the machine sleeps.
  const Time excess = pause.length - pause.asleep - look_interval_;
  if (excess < renewal_interval_) return;
  for (auto& [number, host] : hosts_) {
    if (pause.length >= lease_ && !host.is_of_this_machine) continue;
    // One that has been heard since the pause was not silent for so long.
    const Time silence = host.liveness.silence(now.awake);
    if (silence > Time(0)) host.liveness.OnOwnPause(std::min(excess, silence));
  }
}

// A lease counts from an answer that a later renewal has named: on a busy machine, and before the
// first renewals, most of it is over when the pause begins.
bool LeaseTable::CostsLeases(const OwnPause& pause) const { return pause.length >= lease_ / 3; }

void LeaseTable::RememberPause(const OwnPause& pause, Time now) {
  for (auto& [number, host] : hosts_) {
    if (host.told == HostGrade::kLost) continue;
    if (!host.pause.has_value() || host.pause->length <= pause.length) host.pause = pause;
    host.outlives_pause_at = now + lease_ + kLongestEnd;
  }
}

std::optional<OwnPause> LeaseTable::FindOwnPause(Time now, std::optional<int> number) const {
  const OwnPause recent = pauses_.FindLongest(now);
  if (CostsLeases(recent)) return recent;
  if (!number.has_value()) return std::nullopt;
  const auto host = hosts_.find(*number);
  return host == hosts_.end() ? std::nullopt : host->second.pause;
}

}  // namespace ds::cli
