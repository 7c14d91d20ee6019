#include "runtime/data/prefetching_loader.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace ds::data {

PrefetchingLoader::PrefetchingLoader(std::unique_ptr<BatchStream> stream, std::size_t depth)
    : stream_(std::move(stream)), depth_(depth), state_(stream_->State()) {
  DS_CHECK(depth >= 1);
}

PrefetchingLoader::~PrefetchingLoader() = default;

PrefetchingLoader::Read PrefetchingLoader::ReadNext() {
  Read read;
  try {
    read.batch = stream_->Next();
    read.state_after = stream_->State();
  } catch (...) {
    read.thrown = std::current_exception();
  }
  return read;
}

void PrefetchingLoader::ReadAhead(const std::stop_token& stop) {
  const auto may_read = [&] {
    return read_.size() < depth_ && (read_.empty() || read_.back().ok());
  };
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, may_read)) return;
    }
    Read read = ReadNext();
    const std::lock_guard lock(mutex_);
    read_.push_back(std::move(read));
    changed_.notify_all();
  }
}

StatusOr<TokenBatch> PrefetchingLoader::Next() {
  if (!reader_.joinable()) {
    reader_ = std::jthread([this](const std::stop_token& stop) { ReadAhead(stop); });
  }
  const auto begin = Clock::System().Now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !read_.empty(); });
  waited_ += Clock::System().Now() - begin;
  Read first = std::move(read_.front());
  read_.pop_front();
  state_ = std::move(first.state_after);
  changed_.notify_all();
  if (first.thrown) std::rethrow_exception(first.thrown);
  return std::move(first.batch);
}

void PrefetchingLoader::StopReading() {
  reader_ = {};  // requests a stop and joins
  read_.clear();
}

Status PrefetchingLoader::LoadState(const nlohmann::json& state) {
  const nlohmann::json handed_out = state_;
  StopReading();
  const Status loaded = stream_->LoadState(state);
  // On failure, return the stream from the read-ahead position to the handed-out one.
  if (!loaded.ok()) DS_CHECK(stream_->LoadState(handed_out).ok());
  state_ = stream_->State();
  return loaded;
}

}  // namespace ds::data
