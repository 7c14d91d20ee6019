#include "runtime/plan/zero/pool_sizes.h"

#include <utility>

namespace ds::zero {
namespace {

// At most this many buffers of one size are needed at once again.
constexpr int kMaxIdle = 2;

// A unit has buffers for its parameters and its gradients.
constexpr int kUsersPerUnit = 2;

}  // namespace

bool PoolSizes::Size::is_shared_by_units() const { return users > kUsersPerUnit; }

PoolSizes::Taking PoolSizes::Take(std::int64_t bytes) {
  if (int& idle = sizes_[bytes].idle; idle > 0) {
    --idle;
    return {.is_idle = true};
  }
  Taking taking;
  for (auto& [other_bytes, other] : sizes_) {
    if (other.is_shared_by_units() || other.idle == 0) continue;
    held_bytes_ -= std::exchange(other.idle, 0) * other_bytes;
    taking.freed.push_back(other_bytes);
  }
  held_bytes_ += bytes;
  return taking;
}

bool PoolSizes::Return(std::int64_t bytes) {
  Size& size = sizes_[bytes];
  const bool stays = size.idle < (size.is_shared_by_units() ? kMaxIdle : 1);
  if (stays) {
    ++size.idle;
  } else {
    held_bytes_ -= bytes;
  }
  return stays;
}

void PoolSizes::FreeIdle() {
  for (auto& [bytes, size] : sizes_) held_bytes_ -= std::exchange(size.idle, 0) * bytes;
}

}  // namespace ds::zero
