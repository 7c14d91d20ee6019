#pragma once

// InputQueue: many threads put, one takes. Nobody waits to put: what comes is as much as was asked
// for, one answer for a call and one batch of events from a host at a time.
//
// Threads: safe for any number of putters and takers.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace ds::cli {

template <typename T>
class InputQueue {
 public:
  void Put(T item) { Insert(&items_, std::move(item)); }
  // In front of all that was Put, behind what was urgent before: for what must not queue behind a
  // flood.
  void PutUrgent(T item) { Insert(&urgent_, std::move(item)); }

  // Waits for an item, at most `patience`.
  std::optional<T> Take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    const auto is_filled = [&] { return !urgent_.empty() || !items_.empty(); };
    if (!filled_.wait_for(lock, patience, is_filled)) return std::nullopt;
    std::deque<T>& next = urgent_.empty() ? items_ : urgent_;
    std::optional<T> item(std::move(next.front()));
    next.pop_front();
    return item;
  }

  // Nobody takes any more: what there is goes, and what comes later.
  void Close() {
    std::deque<T> dropped, urgent;  // which may put something as they go
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(items_);
    urgent.swap(urgent_);
  }

 private:
  void Insert(std::deque<T>* line, T item) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    line->push_back(std::move(item));
    filled_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<T> urgent_, items_;  // guarded by mutex_, like closed_
  bool closed_ = false;
};

}  // namespace ds::cli
