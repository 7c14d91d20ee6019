#include "runtime/config/curriculum.h"

#include <algorithm>
#include <cmath>

namespace ds::config {
namespace {

// Returns the root curve's value from `least` to `most`, lowered to a multiple of `multiple`.
std::int64_t OnCurve(double share, std::int64_t least, std::int64_t most, std::int64_t multiple) {
  const double exact = share * static_cast<double>(most - least) + static_cast<double>(least);
  const auto integer = static_cast<std::int64_t>(std::floor(std::min(exact, 1e15)));
  return integer - integer % multiple;
}

std::int64_t FindDiscrete(const CurriculumConfig& curriculum, std::int64_t step) {
  std::size_t i = 0;
  // Once max_difficulty is reached it is kept, even if the list goes on.
  while (i < curriculum.max_step.size() && step > curriculum.max_step[i] &&
         curriculum.difficulty[i] < curriculum.max_difficulty) {
    ++i;
  }
  return curriculum.difficulty[i];
}

}  // namespace

std::int64_t DifficultyAt(const CurriculumConfig& curriculum, std::int64_t step) {
  const std::int64_t least = curriculum.min_difficulty, most = curriculum.max_difficulty;
  if (least >= most) return least;
  if (!curriculum.difficulty.empty()) return FindDiscrete(curriculum, step);
  const std::int64_t multiple = curriculum.difficulty_step;
  const double share =
      std::pow(static_cast<double>(step) / static_cast<double>(curriculum.total_curriculum_step),
               1.0 / static_cast<double>(curriculum.root_degree));
  const std::int64_t floor = (least + multiple - 1) / multiple * multiple;
  return std::min(std::max(OnCurve(share, least, most, multiple), floor), most);
}

std::optional<std::int64_t> FirstStepAt(const CurriculumConfig& curriculum,
                                        std::int64_t difficulty) {
  // The step `below` does not reach the difficulty, the step `reached` does.
  std::int64_t below = 0, reached = std::int64_t{1} << 40;
  if (DifficultyAt(curriculum, reached) < difficulty) return std::nullopt;
  while (reached - below > 1) {
    const std::int64_t step = below + (reached - below) / 2;
    (DifficultyAt(curriculum, step) < difficulty ? below : reached) = step;
  }
  return reached;
}

std::int64_t KeptTokensAt(const RandomLtdConfig& random_ltd, std::int64_t finished_steps) {
  const std::int64_t least = random_ltd.min_value, most = random_ltd.max_value;
  if (least >= most) return least;
  const double share =
      static_cast<double>(finished_steps) / static_cast<double>(random_ltd.require_steps);
  return std::min(OnCurve(share, least, most, random_ltd.seq_per_step), most);
}

}  // namespace ds::config
