#pragma once

// GroupLinks: one group's view of the connections that all groups of a rank share (peer_links.h).
// It translates the group's rank numbers and marks every frame with the group.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/comm/net/peer_links.h"

namespace ds::comm {

class GroupLinks {
 public:
  // `ranks` holds the links' numbers of the group's ranks.
  GroupLinks(std::shared_ptr<PeerLinks> links, GroupId group, std::vector<int> ranks)
      : links_(std::move(links)), group_(group), ranks_(std::move(ranks)) {}

  PeerLinks::Ticket Send(const Frame& frame, std::span<const std::byte> bytes) {
    return links_->Send(OfLinks(frame), bytes);
  }
  PeerLinks::Ticket Receive(const Frame& frame, std::span<std::byte> bytes) {
    return links_->Receive(OfLinks(frame), bytes);
  }
  Status Wait(const PeerLinks::Ticket& ticket) { return links_->Wait(ticket); }
  void AbandonUnfinished() { links_->AbandonUnfinished(group_); }

  const std::shared_ptr<PeerLinks>& all() const { return links_; }
  GroupId group() const { return group_; }
  // Returns the links' numbers: entry [r] belongs to the group's rank r.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  Frame OfLinks(Frame frame) const {
    frame.peer = ranks_[static_cast<std::size_t>(frame.peer)];
    frame.group = group_;
    return frame;
  }

  std::shared_ptr<PeerLinks> links_;
  GroupId group_;
  std::vector<int> ranks_;
};

}  // namespace ds::comm
