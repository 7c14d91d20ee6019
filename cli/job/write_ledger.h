#pragma once

// WriteLedger records which events a run directory contains, in memory that outlives the writing
// process: a mapping that its successor shares. The successor removes what was written for an event
// that is not recorded (Undo), receives the event again, and skips those that are recorded. So
// each event is in its file once.
//
//     OnEvent(event) -> OnAppend(file, its size) -> the bytes are written -> OnWritten(event)
//
// Only one thread of one process writes at a time. IsWritten is for this thread, too.

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

  bool IsWritten(const HostEvent& event) const;
  void OnEvent(const HostEvent& event);
  // Call before bytes are appended to a file of this size. A path that is too long is not recorded:
  // then a killed writer may leave its last line twice.
  void OnAppend(const std::filesystem::path& file, std::uint64_t size);
  void OnWritten(const HostEvent& event);
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
};

}  // namespace ds::cli
