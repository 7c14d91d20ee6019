#pragma once

// GroupFamily: all groups of one rank, which end together. A rank that fails in one group will not
// arrive in the others; without the family their ranks would have to wait for the timeout.
//
// Thread-safe.

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ds::comm {

class CpuGroup;

// Ranks that are missing although they and this rank are alive.
struct Absence {
  enum class Kind {
    kNone,
    kLate,         // they did not arrive at a collective in time
    kUnreachable,  // nothing gets through to their host
  };
  Kind kind = Kind::kNone;
  std::vector<int> ranks = {};  // by their numbers in the job
};
using AbsenceListener = std::function<void(const Absence&)>;
using EndListener = std::function<void(const std::string& cause)>;

class GroupFamily {
 public:
  // Adds a group. A group that is added after the end of the family ends at once.
  void Add(CpuGroup* group);
  // Removes a group. Blocks while Abort is running.
  void Remove(CpuGroup* group);
  // Ends all groups with `cause`, then calls the listeners. Only the first call has an effect.
  void Abort(std::string_view cause);

  // Registers `listener`, which is called once by the thread that ends the family, or at once if
  // the family has ended. The listener must not create or destroy groups.
  void AddListener(const void* owner, EndListener listener);
  // Blocks while Abort is running.
  void RemoveListener(const void* owner);

  // Records ranks that one of the groups found missing. The first absence counts.
  void NoteAbsence(const Absence& absence);
  Absence absence() const;

 private:
  std::mutex mutex_;
  std::vector<CpuGroup*> groups_;
  std::map<const void*, EndListener> listeners_;
  std::string cause_;                 // "" until the end
  mutable std::mutex absence_mutex_;  // separate from mutex_: groups note absences during Abort
  Absence absence_;
};

// FamilyMember: keeps a group in its family for the lifetime of this object. Declare it after all
// members that End uses.
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
