#pragma once

// AgentMemory survives an agent that is killed (agent_guardian.h): its successor finds the state of
// the running generation, the ledger of the run directory, and the user's requests. It is a shared
// mapping without a file, so no file system can delay it, no other process reads it, and it goes
// with its last process.
//
// Keep is called on one thread, and Read after the process that called it has ended, because its
// next states overwrite what is read. write_ledger.h defines the use of the ledger. All other
// functions are thread-safe.

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "cli/job/write_ledger.h"
#include "proto/agent.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class AgentMemory {
 public:
  // kResourceExhausted: there is no room.
  static StatusOr<AgentMemory> Make(std::size_t host_count);
  AgentMemory(AgentMemory&& other) noexcept;
  AgentMemory& operator=(AgentMemory&& other) noexcept;
  ~AgentMemory();

  WriteLedger* ledger() { return &ledger_; }

  // nullopt: there is nothing to take over. A state that is too large is not kept either.
  void Keep(const std::optional<v1::JobState>& state);
  std::optional<v1::JobState> Read() const;

  // The user's stop signals, at most the first four.
  void OnStop(int signal);
  std::vector<int> stop_signals() const;
  void OnDetach() { header()->detached = true; }
  bool detached() const { return header()->detached; }

 private:
  struct Header {
    std::atomic<int> current;  // 0 = no state; 1 or 2: its area
    std::array<std::size_t, 2> sizes;
    std::atomic<bool> detached;
    std::atomic<int> stop_count;
    std::array<std::atomic<int>, 4> stops;
  };

  AgentMemory(char* mapping, std::size_t bytes, std::size_t host_count);
  Header* header() const { return reinterpret_cast<Header*>(mapping_); }
  char* area(int number) const { return areas_ + (number - 1) * area_bytes_; }

  char* mapping_ = nullptr;
  std::size_t bytes_ = 0;
  char* areas_ = nullptr;
  std::size_t area_bytes_ = 0;
  WriteLedger ledger_;
};

}  // namespace ds::cli
