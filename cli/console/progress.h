#pragma once

// Progress aggregates the reports of the ranks into one line for the user.
//
//     step 12/100  loss 3.4512  1234 tokens/s  left 1m23s  512 MiB/rank
//
// The latest "eval loss 3.9031 (perplexity 49.56)" follows the loss.
//
// Pure; time comes from the caller. Not thread-safe.

#include <chrono>
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
  // `total_steps` = 0: unknown until a rank reports it.
  explicit Progress(std::int64_t total_steps) : total_steps_(total_steps) {}

  // Returns true if the event was a finished step. `now` is monotonic: the clocks of hosts differ
  // and may be set back.
  bool OnEvent(const v1::Event& event, std::chrono::nanoseconds now);

  // Returns the line; "" before the first report.
  std::string Line() const;

  std::optional<std::int64_t> step() const { return step_; }
  // Returns the loss at the first and the last step seen; "" unless there were two.
  std::string SummarizeLoss() const;
  // Returns the latest evaluation loss and its step; "" without evaluation.
  std::string SummarizeEvaluation() const;
  bool finished() const { return total_steps_ > 0 && step_ == total_steps_; }

 private:
  struct Moment {
    std::int64_t step;
    std::chrono::nanoseconds time;
  };

  bool OnReport(const v1::RankReport& report, std::chrono::nanoseconds now);
  void OnPhase(const v1::RankPhase& phase, bool of_first_rank);
  bool OnStep(const v1::RankStep& step, std::chrono::nanoseconds now);
  std::optional<double> SecondsLeft() const;
  std::uint64_t FindLargestRank() const;  // in bytes; 0 when not known

  std::int64_t total_steps_;
  std::string phase_;  // before the first step
  std::optional<std::int64_t> step_;
  std::optional<double> loss_;
  std::optional<std::pair<std::int64_t, double>> first_;  // the first step with a loss
  // The latest step with an evaluation, and its result.
  std::optional<std::pair<std::int64_t, std::string>> evaluated_;
  std::optional<double> tokens_per_second_;
  std::map<int, std::uint64_t> resident_bytes_;  // by rank
  std::deque<Moment> recent_;                    // the last steps, for the speed
};

// Formats as "1m23s", "2h05m" or "12s".
std::string ShowDuration(double seconds);

}  // namespace ds::cli
