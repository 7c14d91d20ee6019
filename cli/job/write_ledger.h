#pragma once

// WriteLedger records which events a run directory contains, in memory that outlives the writing
// process: a mapping that its successor shares. The successor removes what was written for an event
// that is not recorded (Undo), receives the event again, and skips those that are recorded. So
// each event is in its file once.
//
//     OnEvent(event) -> OnAppend(file, its size) -> the bytes are written -> OnWritten()
//
// Only one thread of one process writes at a time.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "cli/job/job_observer.h"
#include "runtime/base/status.h"

namespace ds::cli {

class WriteLedger {
 public:
  // Records nothing.
  WriteLedger() = default;
  // `memory` has BytesFor(host_count) bytes and begins zeroed.
  WriteLedger(void* memory, std::size_t host_count);
  static std::size_t BytesFor(std::size_t host_count);

  // Begins to write an event. Returns false if it is recorded: then nothing is to be written.
  bool OnEvent(const HostEvent& event);
  // Call before bytes are appended to a file of this size. A path that is too long is not recorded:
  // then a killed writer may leave its last line twice.
  void OnAppend(const std::filesystem::path& file, std::uint64_t size);
  // Records the event of the last OnEvent, which has returned true.
  void OnWritten();
  // Removes the bytes of an event that is not recorded.
  Status Undo();
  // Records that the job has written metrics.
  void OnMetrics() {
    if (header_ != nullptr) header_->has_metrics = true;
  }
  bool has_metrics() const { return header_ != nullptr && header_->has_metrics; }

 private:
  static constexpr std::size_t kLongestPath = 4096;
  struct Host {
    std::atomic<std::uint64_t> name;     // its hash; 0 = free
    std::atomic<std::uint64_t> written;  // the last event, with its generation
  };
  struct Header {
    std::atomic<bool> appends;
    std::atomic<bool> has_metrics;
    std::uint64_t size;
    std::size_t slot;  // of the host whose event is being written
    std::uint64_t position;
    char path[kLongestPath];
  };
  static std::size_t SlotsFor(std::size_t host_count);
  Host* Find(const HostEvent& event) const;

  Header* header_ = nullptr;
  Host* hosts_ = nullptr;
  std::size_t slots_ = 0;
  Host* writing_ = nullptr;  // of the event that is being written; null: not recorded
};

}  // namespace ds::cli
