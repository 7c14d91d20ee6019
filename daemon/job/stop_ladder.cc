#include "daemon/job/stop_ladder.h"

#include <algorithm>

namespace ds::daemon {

StopLadder::Step StopLadder::Stop(Time grace, v1::StopCause cause, Time now) {
  const Time deadline = now + grace;
  if (grace == Time(0)) give_up_after_ = kGiveUpSoonAfter;
  if (cause_ != v1::STOP_NONE) {
    if (kill_at_) kill_at_ = std::min(*kill_at_, deadline);
    if (give_up_at_) give_up_at_ = std::min(*give_up_at_, now + Time(give_up_after_));
    return Step::kNothing;
  }
  cause_ = cause;
  kill_at_ = deadline;
  return Step::kTerminate;
}

void StopLadder::AwaitEnd(Time now) {
  if (!give_up_at_) give_up_at_ = now + give_up_after_;
}

void StopLadder::End() {
  kill_at_.reset();
  give_up_at_.reset();
}

std::optional<StopLadder::Time> StopLadder::next() const {
  if (kill_at_ && give_up_at_) return std::min(*kill_at_, *give_up_at_);
  return kill_at_ ? kill_at_ : give_up_at_;
}

StopLadder::Step StopLadder::OnTime(Time now) {
  if (kill_at_ && *kill_at_ <= now) {
    kill_at_.reset();
    AwaitEnd(now);
    return Step::kKill;
  }
  if (!give_up_at_ || *give_up_at_ > now) return Step::kNothing;
  give_up_at_.reset();
  return Step::kGiveUp;
}

}  // namespace ds::daemon
