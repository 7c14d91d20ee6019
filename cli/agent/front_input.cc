#include "cli/agent/front_input.h"

#include <system_error>
#include <utility>

#include "runtime/process/thread_quota.h"

namespace ds::cli {

Status FrontInput::Start(Send send) {
  {
    const std::lock_guard lock(mutex_);
    ++serial_;
    offset_ = 0;
    begun_ = false;
    stopping_ = false;
    pieces_.clear();
  }
  try {
    thread_ = std::thread([this, send = std::move(send)] { Loop(send); });
  } catch (const std::system_error& error) {
    return OutOfResourcesError("no thread to read it: " + error.code().message());
  }
  return OkStatus();
}

void FrontInput::Begin() {
  v1::FromAgent message;
  {
    const std::lock_guard lock(mutex_);
    begun_ = true;
    message.mutable_input_wanted()->set_serial(serial_);
    if (gone_) pieces_.push_back({.offset = 0, .data = {}, .end = true});
    changed_.notify_all();
  }
  reply_(message);
}

void FrontInput::Stop() {
  if (!thread_.joinable()) return;
  v1::FromAgent message;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    message.mutable_input_end()->set_serial(serial_);
    changed_.notify_all();
  }
  thread_.join();
  reply_(message);
}

void FrontInput::OnPiece(const v1::InputChunk& chunk) {
  const std::lock_guard lock(mutex_);
  if (chunk.serial() != serial_ || !begun_) return;
  pieces_.push_back({.offset = chunk.offset(), .data = chunk.data(), .end = chunk.end()});
  changed_.notify_all();
}

void FrontInput::EndInput() {
  const std::lock_guard lock(mutex_);
  gone_ = true;
  if (begun_) pieces_.push_back({.offset = offset_, .data = {}, .end = true});
  changed_.notify_all();
}

void FrontInput::Loop(const Send& send) {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !pieces_.empty(); });
    if (stopping_) return;
    InputPiece piece = std::move(pieces_.front());
    pieces_.pop_front();
    v1::FromAgent message;
    v1::InputReply* reply = message.mutable_input_reply();
    reply->set_serial(serial_);
    if (piece.data.empty() && gone_) piece.offset = offset_;  // a piece before it was accepted late
    lock.unlock();
    const StatusOr<std::uint64_t> accepted = send(piece);
    if (accepted.ok()) {
      reply->set_accepted(*accepted);
    } else {
      reply->set_code(static_cast<std::uint32_t>(accepted.status().code()));
      reply->set_message(accepted.status().message());
    }
    lock.lock();
    if (accepted.ok()) offset_ = piece.offset + *accepted;
    lock.unlock();
    reply_(message);
  }
}

}  // namespace ds::cli
