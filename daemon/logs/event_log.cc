#include "daemon/logs/event_log.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/clock.h"

namespace ds::daemon {

bool IsLasting(const v1::Event& event) {
  if (event.has_rank_report()) {
    const v1::RankReport& report = event.rank_report();
    return !report.has_beacon() && !report.has_step() && !report.has_notice();
  }
  return event.has_rank_started() || event.has_rank_exited() || event.has_start_failed() ||
         event.has_generation_ended();
}

void LastingEvents::Keep(v1::Event event) {
  const v1::RankReport& report = event.rank_report();
  if (!event.has_rank_report()) {
    const std::uint64_t sequence = event.sequence();
    events_.emplace(sequence, std::move(event));
  } else if (report.has_error()) {
    KeepError(std::move(event));
  } else if (report.has_put()) {
    const std::string subject = "put " + report.put().key();
    if (!places_.emplace(subject, event.sequence()).second) return;
    events_.emplace(event.sequence(), std::move(event));
  } else {
    const std::string subject =
        std::to_string(report.what_case()) + " of " + std::to_string(report.rank());
    const auto [place, is_first] = places_.emplace(subject, event.sequence());
    if (!is_first) events_.erase(std::exchange(place->second, event.sequence()));
    events_.emplace(event.sequence(), std::move(event));
  }
}

void LastingEvents::KeepError(v1::Event event) {
  const std::uint64_t sequence = event.sequence();
  const std::string rank = std::to_string(event.rank_report().rank());
  const v1::RankError& error = event.rank_report().error();
  const bool tells = error.absence() != v1::RankError::NONE && !error.absent().empty();
  const bool is_first = places_.emplace("first error of " + rank, sequence).second;
  const bool is_first_that_tells =
      tells && places_.emplace("first absence of " + rank, sequence).second;
  if (!is_first && !is_first_that_tells) {
    const auto [last, is_new] = places_.emplace("last error of " + rank, sequence);
    if (!is_new) {
      const auto before = events_.find(std::exchange(last->second, sequence));
      event.mutable_rank_report()->mutable_error()->set_omitted(
          before->second.rank_report().error().omitted() + 1);
      events_.erase(before);
    }
  }
  events_.emplace(sequence, std::move(event));
}

void EventLog::Append(v1::Event event) {
  event.set_unix_nanos(Clock::System().UnixNanos());
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_) return;
    event.set_sequence(++last_sequence_);
    appended_bytes_ += event.ByteSizeLong();
    entries_.push_back({std::move(event), appended_bytes_});
  }
  changed_.notify_all();
}

void EventLog::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool EventLog::full() const {
  const std::lock_guard lock(mutex_);
  return retained_bytes() >= limits_.max_bytes;
}

void EventLog::Abandon() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  Acknowledge(std::numeric_limits<std::uint64_t>::max());
}

StatusOr<EventLog::Watcher> EventLog::Open(std::uint64_t after_sequence, bool again) {
  Watcher watcher{0, after_sequence};
  {
    const std::lock_guard lock(mutex_);
    if (again && after_sequence + 1 < first_retained()) {
      watcher.sent = first_retained() - 1;
      for (const auto& [sequence, event] : lasting_.events()) {
        if (sequence > after_sequence) watcher.repeated.push_back(event);
      }
      after_sequence = watcher.sent;
    }
    if (after_sequence > last_sequence_ || after_sequence + 1 < first_retained()) {
      return OutOfRangeError(
          "event " + std::to_string(after_sequence) + " cannot be continued from: events " +
          std::to_string(first_retained()) + " to " + std::to_string(last_sequence_) + " are kept");
    }
    watcher.id = ++watcher_id_;
  }
  changed_.notify_all();
  Acknowledge(after_sequence);
  return watcher;
}

EventLog::Next EventLog::Wait(Watcher* watcher, Deadline deadline, v1::EventBatch* batch) {
  batch->Clear();
  std::unique_lock lock(mutex_);
  const auto something = [&] {
    return watcher->id != watcher_id_ || !watcher->repeated.empty() ||
           watcher->sent < last_sequence_ || closed_;
  };
  if (!changed_.wait_until(lock, deadline, something)) return Next::kDeadline;
  if (watcher->id != watcher_id_) return Next::kSuperseded;
  if (!watcher->repeated.empty()) {
    FillBatchAgain(watcher, batch);
    return Next::kBatch;
  }
  if (watcher->sent >= last_sequence_) return Next::kEnd;
  if (CountBytesUpTo(watcher->sent) - acknowledged_bytes_ >= limits_.ahead_bytes) {
    return Next::kAcknowledge;
  }
  FillBatch(watcher, batch);
  return Next::kBatch;
}

std::uint64_t EventLog::CountBytesUpTo(std::uint64_t sequence) const {
  return sequence < first_retained() ? acknowledged_bytes_
                                     : entries_[sequence - first_retained()].end;
}

void EventLog::FillBatch(Watcher* watcher, v1::EventBatch* batch) const {
  const std::uint64_t start = CountBytesUpTo(watcher->sent);
  for (std::size_t i = watcher->sent + 1 - first_retained(); i < entries_.size(); ++i) {
    *batch->add_events() = entries_[i].event;
    watcher->sent = entries_[i].event.sequence();
    if (entries_[i].end - start >= limits_.batch_bytes) return;
  }
}

void EventLog::FillBatchAgain(Watcher* watcher, v1::EventBatch* batch) const {
  for (std::size_t bytes = 0; !watcher->repeated.empty() && bytes < limits_.batch_bytes;) {
    bytes += watcher->repeated.front().ByteSizeLong();
    *batch->add_events() = std::move(watcher->repeated.front());
    watcher->repeated.pop_front();
  }
}

void EventLog::AcknowledgeFor(const Watcher& watcher, std::uint64_t sequence) {
  {
    const std::lock_guard lock(mutex_);
    if (watcher.id != watcher_id_) return;
  }
  Acknowledge(std::min(sequence, watcher.sent));
}

void EventLog::Acknowledge(std::uint64_t sequence) {
  bool freed_space = false;
  {
    const std::lock_guard lock(mutex_);
    const bool was_full = retained_bytes() >= limits_.max_bytes;
    Drop(sequence);
    freed_space = was_full && retained_bytes() < limits_.max_bytes;
  }
  if (freed_space && on_space_) on_space_();
}

void EventLog::Drop(std::uint64_t up_to_sequence) {
  while (!entries_.empty() && entries_.front().event.sequence() <= up_to_sequence) {
    acknowledged_bytes_ = entries_.front().end;
    if (!abandoned_ && IsLasting(entries_.front().event)) {
      lasting_.Keep(std::move(entries_.front().event));
    }
    entries_.pop_front();
  }
}

}  // namespace ds::daemon
