#pragma once

// WireMessage: the fields of a message of protobuf, one after the other. Every length is checked
// against the bytes that are there.
//
// Views the bytes, which must outlive it.

#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::tokenizer {

struct WireField {
  std::uint32_t number = 0;
  std::uint64_t varint = 0;  // of a number; of a float its bits
  std::string_view bytes;    // of a text, or a message inside
};

class WireMessage {
 public:
  explicit WireMessage(std::string_view bytes) : rest_(bytes) {}

  // The next field; nothing at the end. Damaged bytes are kInvalidArgument.
  StatusOr<std::optional<WireField>> Next();

 private:
  std::optional<std::uint64_t> TakeVarint();

  std::string_view rest_;
};

}  // namespace ds::tokenizer
