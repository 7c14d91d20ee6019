#include "cli/agent/frames.h"

#include <array>
#include <cstdint>

namespace ds::cli {
namespace {

constexpr std::size_t kSizeBytes = 4;

}  // namespace

Frame MakeFrame(const google::protobuf::MessageLite& message) {
  auto frame = std::make_shared<std::string>();
  const std::size_t size = message.ByteSizeLong();
  frame->reserve(kSizeBytes + size);
  for (std::size_t i = 0; i < kSizeBytes; ++i) {
    frame->push_back(static_cast<char>((size >> (8 * i)) & 0xFFU));
  }
  message.AppendToString(frame.get());
  return frame;
}

StatusOr<bool> FrameReader::Next(google::protobuf::MessageLite* message) {
  if (buffer_.size() - taken_ < kSizeBytes) return false;
  std::size_t size = 0;
  for (std::size_t i = 0; i < kSizeBytes; ++i) {
    size |= std::size_t{static_cast<unsigned char>(buffer_[taken_ + i])} << (8 * i);
  }
  if (size > kMaxFrameBytes) return InvalidArgumentError("a frame is too large");
  if (buffer_.size() - taken_ < kSizeBytes + size) {
    buffer_.erase(0, taken_);
    taken_ = 0;
    return false;
  }
  const std::string_view body = std::string_view(buffer_).substr(taken_ + kSizeBytes, size);
  if (!message->ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return InvalidArgumentError("a frame holds no message of the protocol");
  }
  taken_ += kSizeBytes + size;
  if (taken_ == buffer_.size()) {
    buffer_.clear();
    taken_ = 0;
  }
  return true;
}

}  // namespace ds::cli
