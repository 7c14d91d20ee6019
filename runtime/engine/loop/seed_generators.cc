#include "runtime/engine/loop/train_loop.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

#include "runtime/base/split_mix.h"

namespace ds::engine {

void SeedGenerators(std::uint64_t seed) {
  at::manual_seed(seed);
  at::mt19937 engine(seed);
  at::mt19937_data_pod data = engine.data();
  std::uint64_t next = SplitMix(seed);
  for (std::uint32_t& word : data.state_) word = static_cast<std::uint32_t>(SplitMix(next++));
  engine.set_data(data);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  at::check_generator<at::CPUGeneratorImpl>(generator)->set_engine(engine);
}

}  // namespace ds::engine
