#include "runtime/plan/memory/job_memory_parts.h"

namespace ds::engine {

void BufferParts(const PartBuffer& buffer, const std::vector<bool>& recomputed,
                 std::vector<zero::BlockActivations>* blocks) {
  std::int64_t more = (buffer.count - 1) * buffer.part_bytes;  // for the first block
  for (std::size_t i = 0; i < recomputed.size(); ++i) {
    if (!recomputed[i]) continue;
    zero::BlockActivations& block = (*blocks)[i];
    block.kept += more;
    block.backward += more;
    if (more > 0) block.forward += more;
    more = -buffer.part_bytes;
  }
}

}  // namespace ds::engine
