#pragma once

// LinkReader: the daemon's end of one rank's link. Passes its messages on as RankReport events and
// answers what it asks of the other ranks' values. Nobody behind it sees what a rank wrote as JSON,
// but for the line that goes to metrics.jsonl.
//
// A rank that breaks the protocol loses its link, not its life.
//
// Threads: the loop's.

#include <cstdint>
#include <string>

#include "daemon/logs/event_log.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/rank_link.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// Puts into fields what `message` of `rank` says; nothing of what it asks of its daemon. Pure.
v1::RankReport MakeRankReport(std::uint32_t rank, const RankMessage& message);

class LinkReader {
 public:
  LinkReader(RankContext context, UniqueFd fd) : context_(context), fd_(std::move(fd)) {}
  ~LinkReader() { Close(); }
  LinkReader(const LinkReader&) = delete;
  LinkReader& operator=(const LinkReader&) = delete;

  Status Watch();
  void Resume();
  // Passes on what has arrived and closes the link.
  void DrainAndClose();

  bool broken() const { return broken_; }

 private:
  void OnReadable();
  bool ReadOnce();
  void Report(const RankMessage& message);
  void Answer(const std::string& key, const std::string& value);
  void Break();
  void Close();

  const RankContext context_;
  UniqueFd fd_;
  RankMessageReader reader_;
  bool watched_ = false;
  bool broken_ = false;
};

}  // namespace ds::daemon
