#include "cli/session/last_resort.h"

#include <chrono>

namespace ds::cli {
namespace {

constexpr std::chrono::seconds kPatience{1};

}  // namespace

void LastResort::OnStop() {
  if (announced_.exchange(false)) {
    if (!hosts_.KillHosts()) return;
    warn_("the daemon of this machine is killed: the last output of its ranks may be missing");
  } else if (++stops_ == 2) {
    patience_ = std::jthread([this](const std::stop_token& stop) { Announce(stop); });
  }
}

void LastResort::Announce(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  stopped_.wait_for(lock, stop, kPatience, [] { return false; });
  if (!stop.stop_requested() && hosts_.TellOfHosts(warn_)) announced_ = true;
}

}  // namespace ds::cli
