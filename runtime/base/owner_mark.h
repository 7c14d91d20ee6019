#pragma once

// OwnerMark: proof that dsrun made a folder or control group, and which process did.
//
// A mark is the text "BOOT PID START": the boot that the owner runs in, its pid, and its start time
// in clock ticks. Pids are reused; the three together are not. A plain folder holds its mark in the
// file .dsrun-owner, and the folder's own device and inode with it: in a copy of the folder the
// mark proves nothing. A control group holds it in an extended attribute, because it takes no
// files. Scripts on remote hosts write a file of the same name for folders of their own
// (cli/remote/remote_daemon.cc).
//
// Only a mark allows a removal. A name, an age or an empty folder proves nothing.
//
// Threads: all functions are safe to call concurrently.

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds {

inline constexpr char kOwnerFile[] = ".dsrun-owner";

enum class MarkPlace { kFile, kAttribute };

// The mark of this process; "" where /proc is missing.
std::string MakeOwnMark();

// True when the process of `mark` ran in this boot and has ended. False for another boot, which may
// be another machine, and for any text that is not a mark.
bool IsOwnerGone(std::string_view mark);

// Marks a folder that the caller has just made, given as an open descriptor. kAlreadyExists when
// the folder has a mark file.
Status LeaveMark(int folder, MarkPlace place, std::string_view mark);

// True when an open folder's mark names an owner that has ended, and the caller now holds the lock
// `lock` (LOCK_EX or LOCK_SH) on it, which a living owner denies: in another pid namespace a mark
// proves nothing.
bool LockAbandoned(int folder, MarkPlace place, int lock);

// The mark of an open folder; "" when it has none, when another user wrote it, or when it was
// copied from another folder.
std::string ReadMark(int folder, MarkPlace place);

}  // namespace ds
