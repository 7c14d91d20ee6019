#pragma once

// PrefetchingLoader: reads micro-batches of a stream ahead in a thread.
//
// Callers get the stream's batches and errors in order; after an error the stream is read again.
// Position and state follow the batches handed out, not the batches read ahead: a saved run
// resumes with the first batch that was not trained on.
//
// Not thread-safe. The reader thread starts with the first Next. It alone uses the stream until
// this object is destroyed or loads a state, which end the thread.

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
  // Reads at most `depth` batches ahead. Requires depth >= 1.
  PrefetchingLoader(std::unique_ptr<BatchStream> stream, std::size_t depth);
  ~PrefetchingLoader() override;

  StatusOr<TokenBatch> Next() override;

  // Returns the time that Next has waited for batches since the previous call.
  std::chrono::duration<double> TakeWaited() { return std::exchange(waited_, {}); }

  std::string_view state_name() const override { return stream_->state_name(); }
  void AddShards(std::vector<checkpoint::TensorShard>*) override {}  // the stream has none
  nlohmann::json State() const override { return state_; }
  Status LoadState(const nlohmann::json& state) override;

 private:
  struct Read {
    StatusOr<TokenBatch> batch = TokenBatch();
    std::exception_ptr thrown = {};  // instead of a batch: an exception of LibTorch, when out of
                                     // memory
    nlohmann::json state_after = {};

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
  std::deque<Read> read_;  // guarded by mutex_; no batch is read after an error
  std::jthread reader_;    // ends before the members it uses are destroyed
};

}  // namespace ds::data
