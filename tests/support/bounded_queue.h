#pragma once

// BoundedQueue: many threads put, one takes, or waits for what tests wait for.
//
// Threads: safe for any number of putters and takers.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace ds::testing {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  // Waits for room.
  void Put(T item) {
    std::unique_lock lock(mutex_);
    not_full_.wait(lock, [&] { return items_.size() < capacity_; });
    items_.push_back(std::move(item));
    filled_.notify_one();
  }

  // Waits for an item, at most `timeout`.
  std::optional<T> Take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_for(lock, timeout, [&] { return !items_.empty(); })) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    not_full_.notify_one();
    return item;
  }

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable not_full_;
  std::condition_variable filled_;
  std::deque<T> items_;
};

}  // namespace ds::testing
