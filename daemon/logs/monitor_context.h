#pragma once

// MonitorContext: what everything that watches one generation's ranks shares.

#include <cstdint>
#include <span>

#include "daemon/logs/event_log.h"
#include "daemon/loop/event_loop.h"

namespace ds::daemon {

// All of it outlives the watchers.
struct MonitorContext {
  EventLoop* loop;
  EventLog* log;
  std::span<char> buffer;  // for reading; its content means nothing between calls
  std::uint32_t rank;
};

}  // namespace ds::daemon
