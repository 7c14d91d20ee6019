#include "runtime/comm/control_store.h"

#include <ATen/ops/empty.h>

#include <cstring>

namespace ds::comm {
namespace {

// Rank 0's bytes, on all ranks.
std::vector<std::uint8_t> ShareBytes(std::vector<std::uint8_t> bytes, const std::string& key,
                                     Communicator& control) {
  const std::string tag = "the meeting at " + key;
  const at::Tensor length = at::empty({1}, at::kLong);
  *length.mutable_data_ptr<std::int64_t>() = static_cast<std::int64_t>(bytes.size());
  control.Broadcast(length, /*root=*/0, tag);
  bytes.resize(static_cast<std::size_t>(*length.const_data_ptr<std::int64_t>()));
  const at::Tensor content = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  if (!bytes.empty()) std::memcpy(content.mutable_data_ptr(), bytes.data(), bytes.size());
  control.Broadcast(content, /*root=*/0, tag);
  if (!bytes.empty()) std::memcpy(bytes.data(), content.const_data_ptr(), bytes.size());
  return bytes;
}

}  // namespace

void ControlStore::set(const std::string& key, const Value& value) {
  if (IsMeeting() && control_->rank() == 0) ShareBytes(value, key, *control_);
  HashStore::set(key, value);
}

ControlStore::Value ControlStore::get(const std::string& key) {
  if (!IsMeeting() || control_->rank() == 0) return HashStore::get(key);
  Value value = ShareBytes({}, key, *control_);
  HashStore::set(key, value);
  return value;
}

}  // namespace ds::comm
