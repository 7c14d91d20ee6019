#pragma once

// WireMessage iterates over the fields of a protobuf message. Every length is checked against the
// remaining bytes.
//
// The bytes must outlive this object.

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::tokenizer {

struct WireField {
  std::uint32_t number = 0;
  std::uint64_t varint = 0;  // a number, or the bits of a float
  std::string_view bytes;    // a text, or a nested message
};

class WireMessage {
 public:
  explicit WireMessage(std::string_view bytes) : rest_(bytes) {}

  // Returns the next field; nothing at the end. Damaged bytes are kInvalidArgument.
  StatusOr<std::optional<WireField>> Next();

 private:
  std::optional<std::uint64_t> TakeVarint();

  std::string_view rest_;
};

}  // namespace ds::tokenizer
