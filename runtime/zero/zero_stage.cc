#include "runtime/zero/zero_stage.h"

#include "runtime/base/check.h"

namespace ds::zero {

Sharding ShardingOfStage(int stage, int world_size) {
  DS_CHECK(stage >= 0 && stage <= 3);
  if (world_size == 1) return {};
  return {.optimizer = stage >= 1, .gradients = stage >= 2, .parameters = stage >= 3};
}

}  // namespace ds::zero
