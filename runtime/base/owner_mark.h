#pragma once

// OwnerMark proves that dsrun created a folder or control group, and identifies the process that
// did.
//
// A mark is the text "BOOT PID START": the boot ID, the owner's pid, and its start time in clock
// ticks. Pids are reused; the three together are not. A plain folder stores its mark in the file
// .dsrun-owner, together with the folder's own device and inode, so that a mark in a copied folder
// is invalid. A control group stores it in an extended attribute, because it cannot hold files.
// Scripts on remote hosts write a file of the same name for folders of their own
// (cli/remote/remote_daemon.cc).
//
// Remove a folder only on the evidence of a mark. A name, an age or an empty folder proves nothing.
//
// Thread-safe.

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds {

inline constexpr char kOwnerFile[] = ".dsrun-owner";

enum class MarkLocation { kFile, kAttribute };

// Returns the mark of this process; "" where /proc is missing.
std::string MakeOwnMark();

// Returns true when the process of `mark` ran in this boot and has ended. Returns false for another
// boot, which may be another machine, and for any text that is not a mark.
bool IsOwnerGone(std::string_view mark);

// Marks a folder that the caller has just created and opened. Fails with kAlreadyExists when the
// folder has a mark file.
Status LeaveMark(int folder, MarkLocation location, std::string_view mark);

// Returns true when the mark of an open folder names an owner that has ended and the caller now
// holds `lock` (LOCK_EX or LOCK_SH) on the folder. A live owner holds a conflicting lock. The lock
// is needed because pids of another pid namespace cannot be checked.
bool LockAbandoned(int folder, MarkLocation location, int lock);

// Returns the mark of an open folder. Returns "" when the folder has none, when another user wrote
// it, or when it was copied from another folder.
std::string ReadMark(int folder, MarkLocation location);

}  // namespace ds
