#pragma once

// UserStop: what the signals mean by which a user ends a job (SIGINT, SIGTERM, SIGHUP), from how
// many have come and what the job does at the moment. The one place that counts them.
//
//     phase        the first       the next one   when the user was told of a daemon
//     kPreparing   kCancelStart    kNothing       kKillDaemons
//     kLaunching   kStopRanks      kKillRanks     kKillDaemons
//     kRunning     kStopRanks      kKillRanks     kKillDaemons
//     kStopping    kKeepGrace      kKillRanks     kKillDaemons
//     kEnded       kNothing        kNothing       kKillDaemons
//
// Signals after kKillRanks mean nothing until the user was told, but from the second on dsrun ends
// in a moment, whatever it waits for. No generation begins after the first signal, whatever the
// verdict is about, so that nothing here belongs to an earlier one.
//
// Time, too, gives up an end that does not come: after the first signal when nothing is written any
// more, after the second one in any case, but not before a last chance.
//
// Pure: no I/O, no clock. Threads: safe from any; what a signal means is decided when it comes.

#include <mutex>
#include <string_view>

namespace ds::cli {

enum class JobPhase {
  kPreparing,  // no rank runs: hosts are being started or asked, before a generation
  kLaunching,  // ranks may run on some hosts; others have not answered
  kRunning,
  kStopping,  // something has failed, and ranks have their grace
  kEnded,     // the outcome is known, and daemons are awaited
};

enum class StopStep {
  kNothing,
  kCancelStart,  // nothing is to be waited for
  kStopRanks,    // with their grace
  kKeepGrace,    // a failure stops them already: they may be saving a checkpoint
  kKillRanks,    // and what has not been launched is not waited for
  kKillDaemons,
};

// Patience is what is left of it when a stop has taken as long as it may.
enum class Patience {
  kWait,        // as long again
  kLastChance,  // a moment
  kGiveUp,
};

// Says to the user what is done; "" when he sees it otherwise.
std::string_view StopNotice(StopStep step);

class UserStop {
 public:
  // Returns what is to be done because of it.
  StopStep OnSignal(int signal);
  void Enter(JobPhase phase);
  // The user knows that one more signal kills the daemons; until the next Enter, if he has sent
  // none.
  void OnTold();
  // Decides when time is up; nobody waits any more for what is given up. `goes_on`: what there is
  // to be written is being written.
  Patience OnTimeUp(bool goes_on);
  // The last chance begins now; false when it had begun.
  bool BeginLastChance();

  // The first, be it after the end; 0 = none has come, and there may be another generation.
  int signal() const;
  // True when it came before anything had failed: the verdict is about it.
  bool is_to_blame() const;
  bool kills_ranks() const;
  bool ended() const;  // the job has
  // The daemons of this machine: the end of one says nothing about it. Others are given up.
  bool kills_daemons() const;
  // The second has come, or it was given up.
  bool ends_at_once() const;

 private:
  StopStep Decide();

  mutable std::mutex mutex_;  // guards all
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
