#include "runtime/tokenizer/models/pair_table.h"

#include <bit>

#include "runtime/base/check.h"

namespace ds::tokenizer {

PairTable::PairTable(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)) {
  mask_ = slots_.size() - 1;
}

void PairTable::Add(std::uint32_t left, std::uint32_t right, Merge merge) {
  DS_CHECK(merge.rank != kNone);
  const std::uint64_t key = KeyOf(left, right);
  std::size_t place = PlaceOf(key);
  while (slots_[place].merge.rank != kNone && slots_[place].key != key) {
    place = (place + 1) & mask_;
  }
  slots_[place] = {key, merge};
}

}  // namespace ds::tokenizer
