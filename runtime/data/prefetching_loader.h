#pragma once

// PrefetchingLoader: a stream of micro-batches that a thread reads ahead of being asked for.
//
// A caller sees the stream's batches and errors in their order; behind an error the stream is asked
// again. Position and state are those of what has been handed out, not of what has been
// read: a saved run goes on with the batch that nobody has trained on.
//
// Threads: one thread at a time drives it. Its own begins with the first Next, is the only one to
// touch the stream meanwhile, and has ended when this is destroyed or loads a state.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/data/loader.h"

namespace ds::data {

class PrefetchingLoader : public BatchStream {
 public:
  // At most `depth` batches, at least 1, wait to be asked for.
  PrefetchingLoader(std::unique_ptr<BatchStream> stream, std::size_t depth);
  ~PrefetchingLoader() override;

  StatusOr<Batch> Next() override;

  // Returns how long Next has waited for batches since this was asked last.
  std::chrono::duration<double> TakeWaited() { return std::exchange(waited_, {}); }

  std::string_view state_name() const override { return stream_->state_name(); }
  void AddShards(std::vector<checkpoint::TensorShard>*) override {}  // as the stream's
  nlohmann::json State() const override { return state_; }
  Status LoadState(const nlohmann::json& state) override;

 private:
  struct Read {
    StatusOr<Batch> batch = Batch();
    std::exception_ptr thrown = {};  // in its place: by LibTorch, of memory that there is not
    nlohmann::json state_behind = {};

    bool ok() const { return thrown == nullptr && batch.ok(); }
  };
  Read ReadNext();

  void ReadAhead(const std::stop_token& stop);
  void StopReading();

  const std::unique_ptr<BatchStream> stream_;
  const std::size_t depth_;
  nlohmann::json state_;
  std::chrono::duration<double> waited_{0};

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Read> read_;  // guarded by mutex_; the last may be an error, behind which nobody reads
  std::jthread reader_;    // ends before what it uses
};

}  // namespace ds::data
