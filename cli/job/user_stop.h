#pragma once

// UserStop defines the meaning of the signals with which a user ends a job (SIGINT, SIGTERM,
// SIGHUP), by their number and the phase of the job. It is the only place that counts them.
//
//     phase        the first       the next one   when the user was told of a daemon
//     kPreparing   kCancelStart    kNothing       kKillDaemons
//     kLaunching   kStopRanks      kKillRanks     kKillDaemons
//     kRunning     kStopRanks      kKillRanks     kKillDaemons
//     kStopping    kKeepGrace      kKillRanks     kKillDaemons
//     kEnded       kNothing        kNothing       kKillDaemons
//
// Signals after kKillRanks have no effect until the user was told of a daemon. But after the second
// signal dsrun ends within a moment in any case. No generation begins after the first signal,
// independent of the verdict, so all signals counted here belong to the current generation.
//
// A timeout also gives up waiting for the end: after the first signal when nothing is being written
// any more, after the second one in any case, but not before a last chance.
//
// Pure: no I/O, no clock. Thread-safe; the phase at the arrival of a signal decides its meaning.

#include <mutex>
#include <string_view>

namespace ds::cli {

enum class JobPhase {
  kPreparing,  // no rank runs; hosts are being started or prepared
  kLaunching,  // ranks may run on some hosts; others have not responded
  kRunning,
  kStopping,  // after a failure, during the ranks' grace period
  kEnded,     // the outcome is known; waits for daemons
};

enum class StopStep {
  kNothing,
  kCancelStart,  // cancel all waits
  kStopRanks,    // with their grace period
  kKeepGrace,    // a failure already stops them; they may be saving a checkpoint
  kKillRanks,    // and do not wait for launches in progress
  kKillDaemons,
};

// The decision when a stop has taken its full time.
enum class Patience {
  kWait,        // wait for the same time again
  kLastChance,  // wait for a moment
  kGiveUp,
};

// Returns the message for the user; "" if another message appears.
std::string_view StopNotice(StopStep step);

class UserStop {
 public:
  // Records the signal and returns its step.
  StopStep OnSignal(int signal);
  void Enter(JobPhase phase);
  // Records that the user was told that one more signal kills the daemons. Valid until the next
  // Enter if the user has sent no signal.
  void OnTold();
  // Decides after the timeout. After kGiveUp nothing waits for the end any more. `goes_on`: writes
  // are still making progress.
  Patience OnTimeUp(bool goes_on);
  // Begins the last chance; returns false if it had begun.
  bool BeginLastChance();

  // Returns the first signal, also one after the end; 0 = none, and another generation may follow.
  int signal() const;
  // Returns true if the signal came before any failure, so that it is the verdict's cause.
  bool is_to_blame() const;
  bool kills_ranks() const;
  bool ended() const;  // the job has ended
  // Returns whether the daemons of this machine are being killed, so that their end is no failure.
  // Daemons of other hosts are given up.
  bool kills_daemons() const;
  // Returns true after the second signal or kGiveUp.
  bool ends_at_once() const;

 private:
  StopStep Decide();

  mutable std::mutex mutex_;  // guards all members below
  JobPhase phase_ = JobPhase::kPreparing;
  int signal_ = 0;
  int count_ = 0;
  bool is_to_blame_ = false;
  bool kills_ranks_ = false;
  bool told_ = false;
  bool has_last_chance_ = false;
  bool kills_daemons_ = false;
};

}  // namespace ds::cli
