#include "runtime/tokenizer/file/wire_message.h"

namespace ds::tokenizer {

std::optional<std::uint64_t> WireMessage::TakeVarint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= std::uint64_t{byte & 127U} << shift;
    if (byte < 128) return value;
  }
  return std::nullopt;
}

StatusOr<std::optional<WireField>> WireMessage::Next() {
  if (rest_.empty()) return std::optional<WireField>();
  const Status damaged = InvalidArgumentError("the message is damaged");
  const auto tag = TakeVarint();
  if (!tag) return damaged;
  WireField field{.number = static_cast<std::uint32_t>(*tag >> 3)};
  const std::uint64_t kind = *tag & 7;
  if (kind == 0) {
    const auto value = TakeVarint();
    if (!value) return damaged;
    field.varint = *value;
    return std::optional(field);
  }
  std::uint64_t size = kind == 1 ? 8 : 4;
  if (kind == 2) {
    const auto given = TakeVarint();
    if (!given) return damaged;
    size = *given;
  } else if (kind != 1 && kind != 5) {
    return damaged;
  }
  if (size > rest_.size()) return damaged;
  field.bytes = rest_.substr(0, size);
  for (std::size_t i = 0; kind != 2 && i < size; ++i) {
    field.varint |= std::uint64_t{static_cast<unsigned char>(field.bytes[i])} << (8 * i);
  }
  rest_.remove_prefix(size);
  return std::optional(field);
}

}  // namespace ds::tokenizer
