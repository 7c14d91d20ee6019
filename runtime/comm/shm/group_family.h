#pragma once

// GroupFamily: the groups of one rank, which end together: a rank that cannot go on in one of them
// will not come in the others, and their ranks had to find out by waiting.
//
// Threads: any.

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ds::comm {

class CpuGroup;

class GroupFamily {
 public:
  // A group that is made after the end ends at once.
  void Add(CpuGroup* group);
  // Waits while the family is being ended.
  void Remove(CpuGroup* group);
  // Ends all groups with `cause`. The first one counts.
  void Abort(std::string_view cause);

 private:
  std::mutex mutex_;
  std::vector<CpuGroup*> groups_;
  std::string cause_;  // "" until the end
};

// A group belongs to a family as long as it has one of these, which stands behind what End needs.
class FamilyMember {
 public:
  FamilyMember(GroupFamily* family, CpuGroup* group) : family_(family), group_(group) {
    family_->Add(group_);
  }
  ~FamilyMember() { family_->Remove(group_); }
  FamilyMember(const FamilyMember&) = delete;
  FamilyMember& operator=(const FamilyMember&) = delete;

 private:
  GroupFamily* family_;
  CpuGroup* group_;
};

}  // namespace ds::comm
