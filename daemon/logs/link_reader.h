#pragma once

// LinkReader: the daemon's end of one rank's link. Passes its messages on as RankReport events and
// remembers its last beacon.
//
// A rank that breaks the protocol loses its link, not its life.
//
// Threads: the loop's.

#include <cstdint>
#include <string>

#include "daemon/logs/monitor_context.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/rank_link.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {

class LinkReader {
 public:
  LinkReader(MonitorContext context, UniqueFd fd) : context_(context), fd_(std::move(fd)) {}
  ~LinkReader() { Close(); }
  LinkReader(const LinkReader&) = delete;
  LinkReader& operator=(const LinkReader&) = delete;

  Status Watch();
  void Resume();
  // Passes on what has arrived and closes the link.
  void DrainAndClose();

  bool broken() const { return broken_; }
  // The body of the last beacon, "" before the first, and when it came.
  const std::string& last_beacon() const { return last_beacon_; }
  std::int64_t last_beacon_unix_nanos() const { return last_beacon_unix_nanos_; }

 private:
  void OnReadable();
  bool ReadOnce();
  void Report(RankMessage message);
  void Close();

  const MonitorContext context_;
  UniqueFd fd_;
  RankMessageReader reader_;
  std::string last_beacon_;
  std::int64_t last_beacon_unix_nanos_ = 0;
  bool watched_ = false;
  bool broken_ = false;
};

}  // namespace ds::daemon
