#include "runtime/data/sampler.h"

namespace ds::data {

std::int64_t Sampler::At(std::int64_t place) {
  const std::int64_t pass = place / samples_, index = place % samples_;
  if (!options_.shuffle) return index;
  if (pass != pass_) {
    permutation_.emplace(samples_,
                         options_.seed + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(pass));
    pass_ = pass;
  }
  return permutation_->At(index);
}

}  // namespace ds::data
