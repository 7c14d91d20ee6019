#pragma once

// AgentMemory survives an agent that is killed (agent_guardian.h): its successor finds the state of
// the running generation, the ledger of the run directory, and the user's requests. It is a shared
// mapping without a file, so no file system can delay it, no other process reads it, and it goes
// with its last process.
//
// Keep and KeepMoment are called on one thread, and Read after the process that called it has
// ended, because its next states overwrite what is read. write_ledger.h defines the use of the
// ledger. All other functions are thread-safe.

#include <google/protobuf/message_lite.h>

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
  // Keeps the small part that changes while the ranks run.
  void KeepMoment(const v1::JobMoment& moment);
  // Returns the state with the last moment.
  std::optional<v1::JobState> Read() const;

  // The user's stop signals, at most the first four, of the agent itself and of fronts.
  void OnStop(int signal);
  void OnFrontStop(int signal);
  std::vector<int> stop_signals() const;
  // The number of those that fronts have sent: a front repeats the missing ones.
  int front_stop_count() const { return header()->front_stop_count; }
  void OnDetach() { header()->detached = true; }
  bool detached() const { return header()->detached; }

 private:
  // A message in one of two areas, so that a process which is killed leaves a whole one.
  struct Pair {
    std::atomic<int> current;  // 0 = no message; 1 or 2: its area
    std::array<std::size_t, 2> sizes;
  };
  struct Areas {
    char* first = nullptr;
    std::size_t bytes = 0;  // of each of the two
  };
  struct Header {
    Pair state;
    Pair moment;
    std::atomic<bool> detached;
    std::atomic<int> stop_count;
    std::atomic<int> front_stop_count;
    std::array<std::atomic<int>, 4> stops;
  };

  AgentMemory(char* mapping, std::size_t bytes, std::size_t host_count);
  Header* header() const { return reinterpret_cast<Header*>(mapping_); }
  // A message that is too large is not kept, and neither is the one before.
  static void Store(const google::protobuf::MessageLite& message, Pair* pair, const Areas& areas);
  // Returns false if there is none.
  static bool Load(const Pair& pair, const Areas& areas, google::protobuf::MessageLite* message);

  char* mapping_ = nullptr;
  std::size_t bytes_ = 0;
  Areas states_;
  Areas moments_;
  WriteLedger ledger_;
};

}  // namespace ds::cli
