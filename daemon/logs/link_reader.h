#pragma once

// LinkReader is the daemon's end of one rank's link. It forwards the rank's messages as RankReport
// events and answers its requests for other ranks' values. Only this class parses the rank's JSON,
// except for the line that goes to metrics.jsonl.
//
// A rank that violates the protocol loses its link and keeps running.
//
// Use it on the loop's thread only.

#include <cstdint>
#include <string>

#include "daemon/logs/event_log.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/rank_link.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

// Converts `message` of `rank` into fields. Ignores requests to the daemon. Pure.
v1::RankReport MakeRankReport(std::uint32_t rank, const RankMessage& message);

class LinkReader {
 public:
  LinkReader(RankContext context, UniqueFd fd) : context_(context), fd_(std::move(fd)) {}
  ~LinkReader() { Close(); }
  LinkReader(const LinkReader&) = delete;
  LinkReader& operator=(const LinkReader&) = delete;

  Status Watch();
  void Resume();
  // Forwards the messages received so far and closes the link.
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
