#pragma once

// A message as one line of text (base64), for pipes in which lines are what can be told apart:
// those between a daemon and who starts it.
//
// Pure.

#include <absl/strings/escaping.h>
#include <google/protobuf/message_lite.h>

#include <string>
#include <string_view>

namespace dsrun::v1 {

inline std::string EncodeLine(const google::protobuf::MessageLite& message) {
  return absl::Base64Escape(message.SerializeAsString()) + "\n";
}

// Reads a line without its newline; false when it holds no such message.
inline bool DecodeLine(std::string_view line, google::protobuf::MessageLite* message) {
  std::string bytes;
  return absl::Base64Unescape({line.data(), line.size()}, &bytes) &&
         message->ParseFromString(bytes);
}

}  // namespace dsrun::v1
