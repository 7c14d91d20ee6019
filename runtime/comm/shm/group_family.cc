#include "runtime/comm/shm/group_family.h"

#include <utility>

#include "runtime/comm/shm/cpu_group.h"

namespace ds::comm {

void GroupFamily::Add(CpuGroup* group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(group);
  if (!cause_.empty()) group->End(cause_);
}

void GroupFamily::Remove(CpuGroup* group) {
  const std::lock_guard lock(mutex_);
  std::erase(groups_, group);
}

void GroupFamily::Abort(std::string_view cause) {
  const std::lock_guard lock(mutex_);
  if (!cause_.empty()) return;
  cause_ = cause;
  for (CpuGroup* group : groups_) group->End(cause_);
  for (const auto& [owner, listener] : listeners_) listener(cause_);
}

void GroupFamily::AddListener(const void* owner, EndListener listener) {
  const std::lock_guard lock(mutex_);
  if (!cause_.empty()) listener(cause_);
  listeners_[owner] = std::move(listener);
}

void GroupFamily::RemoveListener(const void* owner) {
  const std::lock_guard lock(mutex_);
  listeners_.erase(owner);
}

void GroupFamily::NoteAbsence(const Absence& absence) {
  const std::lock_guard lock(absence_mutex_);
  if (absence_.kind == Absence::Kind::kNone) absence_ = absence;
}

Absence GroupFamily::absence() const {
  const std::lock_guard lock(absence_mutex_);
  return absence_;
}

}  // namespace ds::comm
