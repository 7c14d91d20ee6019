#pragma once

// Lookahead: the units that the visits behind a place will need, as many in their order as a budget
// of bytes takes. It moves from place to place; all moves together take time in proportion to the
// visits, however far the budget reaches. Pure.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ds::zero {

class Lookahead {
 public:
  // `needs`: by place, the units that it needs; `stretch`: by place, a number that never falls.
  // From a place only places of its own stretch are looked at. `bytes`: by unit. All outlive this.
  Lookahead(const std::vector<std::vector<int>>& needs, const std::vector<int>& stretch,
            std::vector<std::int64_t> bytes);

  // Goes on to a later place. What that needs itself is not counted. Appends the units for which
  // Contains or the needs may have changed, those that come first.
  void MoveTo(std::size_t place, std::int64_t budget, std::vector<int>* changed);

  // From here on the unit takes nothing of the budget.
  void SetFree(int unit);

  // Tells whether the unit, which the place does not need itself, is needed soon enough.
  bool Contains(int unit) const { return IsCounted(static_cast<std::size_t>(unit)); }
  std::int64_t bytes() const { return sum_; }  // of all these

 private:
  struct Visit {
    std::size_t place = 0;
    std::size_t unit = 0;
  };

  bool IsCounted(std::size_t unit) const { return visits_of_[unit] > 0 && !is_needed_[unit]; }
  bool Grow(std::size_t place, std::int64_t budget);
  void AddVisit(std::size_t unit, int count);
  void SetNeeded(std::size_t unit, bool needed);

  const std::vector<std::vector<int>>& needs_;
  const std::vector<int>& stretch_;
  std::vector<std::int64_t> bytes_;
  std::vector<Visit> visits_;  // of all places
  std::size_t begin_ = 0;      // of the visits that are looked at
  std::size_t end_ = 0;
  std::vector<int> visits_of_;   // by unit: how many of those
  std::vector<bool> is_needed_;  // by unit: at the place itself
  std::vector<int> needed_;      // the same as a list
  std::int64_t sum_ = 0;
};

}  // namespace ds::zero
