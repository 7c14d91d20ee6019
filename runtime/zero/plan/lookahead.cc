#include "runtime/zero/plan/lookahead.h"

#include <algorithm>
#include <utility>

namespace ds::zero {

Lookahead::Lookahead(const std::vector<std::vector<int>>& needs, const std::vector<int>& stretch,
                     std::vector<std::int64_t> bytes)
    : needs_(needs),
      stretch_(stretch),
      bytes_(std::move(bytes)),
      visits_of_(bytes_.size(), 0),
      is_needed_(bytes_.size(), false) {
  for (std::size_t place = 0; place < needs.size(); ++place) {
    for (const int unit : needs[place]) visits_.push_back({place, static_cast<std::size_t>(unit)});
  }
}

void Lookahead::SetFree(int unit) {
  if (Contains(unit)) sum_ -= bytes_[static_cast<std::size_t>(unit)];
  bytes_[static_cast<std::size_t>(unit)] = 0;
}

void Lookahead::AddVisit(std::size_t unit, int count) {
  if (IsCounted(unit)) sum_ -= bytes_[unit];
  visits_of_[unit] += count;
  if (IsCounted(unit)) sum_ += bytes_[unit];
}

void Lookahead::SetNeeded(std::size_t unit, bool needed) {
  if (IsCounted(unit)) sum_ -= bytes_[unit];
  is_needed_[unit] = needed;
  if (IsCounted(unit)) sum_ += bytes_[unit];
}

bool Lookahead::Grow(std::size_t place, std::int64_t budget) {
  if (end_ == visits_.size() || budget <= 0) return false;
  const Visit& next = visits_[end_];
  if (stretch_[next.place] != stretch_[place]) return false;
  const bool adds = visits_of_[next.unit] == 0 && !is_needed_[next.unit];
  if (adds && sum_ + bytes_[next.unit] > budget) return false;
  AddVisit(next.unit, 1);
  ++end_;
  return true;
}

void Lookahead::MoveTo(std::size_t place, std::int64_t budget, std::vector<int>* changed) {
  changed->insert(changed->end(), needed_.begin(), needed_.end());
  for (const int unit : needed_) SetNeeded(static_cast<std::size_t>(unit), false);
  for (; begin_ < visits_.size() && visits_[begin_].place <= place; ++begin_) {
    if (begin_ >= end_) continue;
    AddVisit(visits_[begin_].unit, -1);
    changed->push_back(static_cast<int>(visits_[begin_].unit));
  }
  end_ = std::max(begin_, end_);
  needed_ = needs_[place];
  for (const int unit : needed_) SetNeeded(static_cast<std::size_t>(unit), true);
  changed->insert(changed->end(), needed_.begin(), needed_.end());
  while (end_ > begin_ && (sum_ > budget || budget <= 0)) {
    --end_;
    AddVisit(visits_[end_].unit, -1);
    changed->push_back(static_cast<int>(visits_[end_].unit));
  }
  while (Grow(place, budget)) changed->push_back(static_cast<int>(visits_[end_ - 1].unit));
}

}  // namespace ds::zero
