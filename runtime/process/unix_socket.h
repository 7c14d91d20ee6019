#pragma once

// Unix sockets between processes of one user: connected pairs, listening sockets in a folder, and
// descriptors that are sent over them.
//
// Thread-safe.

#include <filesystem>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

struct SocketPair {
  UniqueFd ours;
  UniqueFd theirs;
};
// Returns the two ends of a stream, close-on-exec.
StatusOr<SocketPair> MakeSocketPair();

// Returns a listening socket with mode 0600, close-on-exec. Fails with kAlreadyExists when `path`
// exists.
StatusOr<UniqueFd> ListenUnix(const std::filesystem::path& path);

// Connects without waiting. Fails with kUnavailable when no process listens or the backlog is full.
StatusOr<UniqueFd> ConnectUnix(const std::filesystem::path& path);

// Sends a descriptor over a unix socket, with one byte. Does not raise SIGPIPE.
Status SendDescriptor(int socket, const UniqueFd& descriptor);

// Blocks until a descriptor arrives. kUnavailable: the other end is closed.
StatusOr<UniqueFd> ReceiveDescriptor(int socket);

}  // namespace ds
