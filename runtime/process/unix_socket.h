#pragma once

// Unix sockets between processes of one user: connected pairs, and sockets that lie in a folder.
//
// Threads: safe to call concurrently.

#include <filesystem>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

struct SocketPair {
  UniqueFd ours;
  UniqueFd theirs;
};
// Two ends of one stream, close-on-exec.
StatusOr<SocketPair> MakeSocketPair();

// A listening socket, 0600 and close-on-exec. kAlreadyExists when something lies at `path`.
StatusOr<UniqueFd> ListenUnix(const std::filesystem::path& path);

// Never waits: kUnavailable when nobody listens, or too many wait already.
StatusOr<UniqueFd> ConnectUnix(const std::filesystem::path& path);

}  // namespace ds
