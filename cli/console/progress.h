#pragma once

// Progress: what the reports of the ranks add up to, as one line for the user.
//
//     step 12/100  loss 3.4512  1234 tokens/s  left 1m23s  512 MiB/rank
//
// with the latest "eval loss 3.9031 (perplexity 49.56)" behind the loss.
//
// Pure; its time is the events'. Threads: one at a time.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

class Progress {
 public:
  // `total_steps` 0: not known unless a rank reports it.
  explicit Progress(std::int64_t total_steps) : total_steps_(total_steps) {}

  // True when the event was a finished step.
  bool OnEvent(const v1::Event& event);

  // The line; "" before the first report.
  std::string Line() const;

  std::optional<std::int64_t> step() const { return step_; }
  // The loss at the first step seen and at the last; "" unless there were two.
  std::string SummarizeLoss() const;
  // The latest loss on data that is not learnt, and its step; "" where nothing was evaluated.
  std::string SummarizeEvaluation() const;
  bool finished() const { return total_steps_ > 0 && step_ == total_steps_; }

 private:
  struct Moment {
    std::int64_t step;
    std::int64_t unix_nanos;
  };

  bool OnReport(const v1::RankReport& report, std::int64_t unix_nanos);
  void OnPhase(const v1::RankPhase& phase, bool of_first_rank);
  bool OnStep(const v1::RankStep& step, std::int64_t unix_nanos);
  std::optional<double> SecondsLeft() const;
  std::uint64_t FindLargestRank() const;  // in bytes; 0 when not known

  std::int64_t total_steps_;
  std::string phase_;  // before the first step
  std::optional<std::int64_t> step_;
  std::optional<double> loss_;
  std::optional<std::pair<std::int64_t, double>> first_;  // the first step that had a loss, and it
  // The latest step behind which other data was evaluated, and what that gave.
  std::optional<std::pair<std::int64_t, std::string>> evaluated_;
  std::optional<double> tokens_per_second_;
  std::map<int, std::uint64_t> resident_bytes_;  // by rank
  std::deque<Moment> recent_;                    // the last steps, for the pace
};

// "1m23s", "2h05m", "12s".
std::string ShowDuration(double seconds);

}  // namespace ds::cli
