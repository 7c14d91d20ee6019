#include "runtime/optim/one_bit/zero_one_intervals.h"

#include <algorithm>

namespace ds::optim {

ZeroOneUpdate ZeroOneIntervals::Position::kind() const {
  if (frozen) return step % local_interval == 0 ? ZeroOneUpdate::kExchange : ZeroOneUpdate::kLocal;
  return step % variance_interval == 0 ? ZeroOneUpdate::kRefresh : ZeroOneUpdate::kOneBit;
}

void ZeroOneIntervals::Position::Advance(const config::ZeroOneAdamConfig& config) {
  if (kind() == ZeroOneUpdate::kRefresh && ++refreshes == config.var_update_scaler) {
    refreshes = 0;
    variance_interval *= 2;
  }
  if (frozen && ++local_steps == config.local_step_scaler) {
    local_steps = 0;
    local_interval = std::min(config.local_step_clipper, 2 * local_interval);
  }
  frozen = frozen || step > config.var_freeze_step;
  ++step;
}

ZeroOneUpdate ZeroOneIntervals::At(std::int64_t update) const {
  const std::int64_t step = update + 1;
  if (step < position_.step) position_ = {};
  while (position_.step < step) position_.Advance(config_);
  return position_.kind();
}

}  // namespace ds::optim
