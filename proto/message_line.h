#pragma once

// Encodes a message as one line of text (base64), for the line-based pipes between a daemon and the
// process that starts it.
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

// Decodes a line without its newline; returns false if it holds no such message.
inline bool DecodeLine(std::string_view line, google::protobuf::MessageLite* message) {
  std::string bytes;
  return absl::Base64Unescape({line.data(), line.size()}, &bytes) &&
         message->ParseFromString(bytes);
}

}  // namespace dsrun::v1
