#pragma once

// RankInput supplies the standard input of rank 0 while a generation runs.
//
// Call Start, Begin and Stop on one thread.

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/base/status.h"

namespace ds::cli {

struct InputPiece {
  std::uint64_t offset = 0;  // of the first byte in this generation's input
  std::string data;
  bool end = false;  // end of the input
};

class RankInput {
 public:
  // Returns the number of accepted bytes, which may be less than the piece if rank 0 does not read
  // for a while. A piece without a response (NobodyAnswered) is sent again; any other error ends
  // the forwarding. It blocks, and is called on another thread, one call at a time.
  using Send = std::function<StatusOr<std::uint64_t>(const InputPiece&)>;

  virtual ~RankInput() = default;
  // Creates the thread, before the ranks use up the available threads. It sends nothing before
  // Begin. Requires: not started, or stopped since. kResourceExhausted if there is no free thread.
  virtual Status Start(Send send) = 0;
  // Begins to forward. Call it once after each Start, when rank 0 can accept input.
  virtual void Begin() = 0;
  // Stops the forwarding and waits for a Send in progress. Does nothing if not started.
  virtual void Stop() = 0;
};

}  // namespace ds::cli
