#include "runtime/comm/net/peer_rails.h"

#include <sys/socket.h>

#include <algorithm>
#include <limits>

#include "runtime/comm/net/peer_silence.h"

namespace ds::comm {

PeerRails::PeerRails(std::unique_ptr<PeerStream> stream) {
  if (stream != nullptr) rails_.push_back({std::move(stream), {}});
}

std::size_t PeerRails::Left(std::uint64_t position) const {
  if (rails_.size() == 1) return std::numeric_limits<std::size_t>::max();
  return kStripe - position % kStripe;
}

ssize_t PeerRails::Write(std::span<const std::byte> head, std::span<const std::byte> body) {
  const std::size_t left = Left(written_);
  head = head.first(std::min(head.size(), left));
  body = body.first(std::min(body.size(), left - head.size()));
  const ssize_t written = writing().stream->Write(head, body);
  if (written > 0) written_ += static_cast<std::uint64_t>(written);
  return written;
}

ssize_t PeerRails::Read(std::span<std::byte> to) {
  const ssize_t got = reading().stream->Read(to.first(std::min(to.size(), Left(read_))));
  if (got > 0) read_ += static_cast<std::uint64_t>(got);
  return got;
}

void PeerRails::EndWriting() {
  for (const Rail& rail : rails_) ::shutdown(rail.stream->fd(), SHUT_WR);
}

void PeerRails::EndWhenSilent(std::chrono::seconds silence) {
  for (const Rail& rail : rails_) comm::EndWhenSilent(rail.stream->fd(), silence);
}

const PeerRails::Rail* PeerRails::FindSilent(std::chrono::seconds silence) const {
  const auto found = std::find_if(rails_.begin(), rails_.end(),
                                  [&](const Rail& rail) { return rail.stream->IsSilent(silence); });
  return found == rails_.end() ? nullptr : &*found;
}

std::string PeerRails::Describe(const Rail& rail) const {
  return rails_.size() < 2 ? "" : " over " + rail.name;
}

}  // namespace ds::comm
