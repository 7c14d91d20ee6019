#pragma once

// Unix sockets between processes of one user: connected pairs, a private folder, who the other end
// is, and whole messages with descriptors beside them.
//
// A message is its length (4 bytes, this machine's byte order) and its bytes; descriptors travel
// with the length. Threads: safe to call concurrently on different sockets.

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

struct SocketPair {
  UniqueFd ours;
  UniqueFd theirs;
};
// Two ends of one stream, close-on-exec.
StatusOr<SocketPair> MakeSocketPair();

// OK when `folder` is a directory, no link, that this user owns and nobody else may enter.
Status CheckPrivateFolder(const std::filesystem::path& folder);

// A listening socket, 0600 and close-on-exec. kAlreadyExists when something lies at `path`.
StatusOr<UniqueFd> ListenUnix(const std::filesystem::path& path);

// Never waits: kUnavailable when nobody listens, or too many wait already.
StatusOr<UniqueFd> ConnectUnix(const std::filesystem::path& path);

struct SocketPeer {
  pid_t pid = -1;
  uid_t user = 0;
};
StatusOr<SocketPeer> PeerOf(int socket);

// Waits at most `patience` for room (kDeadlineExceeded).
Status SendMessage(int socket, std::string_view message, std::chrono::milliseconds patience,
                   const std::vector<int>& descriptors = {});

struct ReceivedMessage {
  std::string bytes;
  std::vector<UniqueFd> descriptors;  // close-on-exec
};
// Waits at most `patience` (kDeadlineExceeded). kUnavailable when the other end closes before the
// message is whole, kResourceExhausted when it says to be longer than `max_bytes`.
StatusOr<ReceivedMessage> ReceiveMessage(int socket, std::size_t max_bytes,
                                         std::chrono::milliseconds patience);

}  // namespace ds
