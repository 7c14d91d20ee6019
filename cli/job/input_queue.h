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
  void Put(T item) { Insert(false, std::move(item)); }
  // In front of everything else: for what must not queue behind a flood.
  void PutUrgent(T item) { Insert(true, std::move(item)); }

  // Waits for an item, at most `patience`.
  std::optional<T> Take(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_for(lock, patience, [&] { return !items_.empty(); })) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  // Nobody takes any more: what there is goes, and what comes later.
  void Close() {
    std::deque<T> dropped;  // which may put something as it goes
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(items_);
  }

 private:
  void Insert(bool in_front, T item) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    items_.insert(in_front ? items_.begin() : items_.end(), std::move(item));
    filled_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace ds::cli
