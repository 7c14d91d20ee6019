#pragma once

// GroupFamily: the groups of one rank, which end together: a rank that cannot go on in one of them
// will not come in the others, and their ranks had to find out by waiting.
//
// Threads: any.

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ds::comm {

class CpuGroup;

// Ranks that a rank has found not to be there while they and it were alive.
struct Absence {
  enum class Kind {
    kNone,
    kLate,         // they did not come to a collective in time
    kUnreachable,  // nothing gets through to their host
  };
  Kind kind = Kind::kNone;
  std::vector<int> ranks = {};  // by their numbers in the job
};
using AbsenceListener = std::function<void(const Absence&)>;
using EndListener = std::function<void(const std::string& cause)>;

class GroupFamily {
 public:
  // A group that is made after the end ends at once.
  void Add(CpuGroup* group);
  // Waits while the family is being ended.
  void Remove(CpuGroup* group);
  // Ends all groups with `cause`, then tells the listeners. The first one counts.
  void Abort(std::string_view cause);

  // `listener` is called once, by who ends the family, or at once when it has ended; it makes and
  // destroys no group.
  void AddListener(const void* owner, EndListener listener);
  // Waits while the family is being ended.
  void RemoveListener(const void* owner);

  // One of the groups has found ranks missing. The first ones count.
  void NoteAbsence(const Absence& absence);
  Absence absence() const;

 private:
  std::mutex mutex_;
  std::vector<CpuGroup*> groups_;
  std::map<const void*, EndListener> listeners_;
  std::string cause_;                 // "" until the end
  mutable std::mutex absence_mutex_;  // not mutex_: groups note while they are ended
  Absence absence_;
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
