#include "runtime/offload/choose_queue.h"

namespace ds::offload {

ChosenQueue ChooseQueue(const IoOptions& options, QueueChoice choice, FileSystem& system) {
  std::string why_not = "threads were asked for";
  if (choice == QueueChoice::kAuto) {
    StatusOr<std::unique_ptr<RingQueue>> ring = RingQueue::Create(options);
    if (ring.ok()) return {.queue = *std::move(ring)};
    why_not = "this kernel, or the container's rules, forbid it (" + ring.status().message() + ")";
  }
  return {.queue = std::make_unique<ThreadQueue>(options, system), .why_not_ring = why_not};
}

}  // namespace ds::offload
