#pragma once

// ChooseQueue: io_uring where this kernel lets us have it, else threads.

#include <memory>
#include <string>

#include "runtime/base/file_system.h"
#include "runtime/offload/io_queue.h"

namespace ds::offload {

enum class QueueChoice {
  kAuto,
  kThreads,
};

struct ChosenQueue {
  std::unique_ptr<IoQueue> queue;
  std::string why_not_ring = {};  // empty where it is one
};

// Files are read and written through `system` where threads do it.
ChosenQueue ChooseQueue(const IoOptions& options, QueueChoice choice, FileSystem& system);

}  // namespace ds::offload
