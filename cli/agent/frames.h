#pragma once

// Frames are the units of the stream between an agent and its fronts (proto/agent.proto): the size
// of a message, 4 bytes in little-endian order, and then the message.
//
// MakeFrame is pure. FrameReader is not thread-safe.

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::cli {

// The largest message: an event has at most about 1 MiB of output.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{64} << 20;

// Frames are shared by the queues of several fronts.
using Frame = std::shared_ptr<const std::string>;

Frame MakeFrame(const google::protobuf::MessageLite& message);

// FrameReader splits received bytes into messages.
class FrameReader {
 public:
  void Add(std::string_view bytes) { buffer_ += bytes; }
  // Parses the next complete frame into `message`. Returns false if there is none yet.
  // kInvalidArgument: the stream does not follow the protocol.
  StatusOr<bool> Next(google::protobuf::MessageLite* message);

 private:
  std::string buffer_;
  std::size_t taken_ = 0;  // bytes at the front of buffer_ that belong to earlier frames
};

}  // namespace ds::cli
