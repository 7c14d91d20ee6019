#pragma once

// Console renders the output and progress of a running job for the user.
//
// A terminal shows one live line (progress.h), redrawn below the ranks' output, and one row for
// every unfinished line of a rank (unfinished_lines.h). Other outputs get a plain line for the
// first and the last step and every few seconds between. Ranks' output is prefixed `rank@host`;
// identical lines of several ranks are merged. Progress and standard output go to stdout; notices,
// the verdict and standard error to stderr. dsrun's own messages contain no control characters from
// outside (runtime/base/printable.h). The ranks' output is not changed.
//
// How often something is drawn is decided by a monotonic clock of this machine. The timestamps of
// events are of other machines' clocks, which differ and may be set back.
//
// Not thread-safe.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/console/backlog_writer.h"
#include "cli/console/line_collapser.h"
#include "cli/console/progress.h"
#include "cli/console/unfinished_lines.h"
#include "cli/flags/log_filter.h"
#include "cli/job/job_observer.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/clock.h"

namespace ds::cli {

struct ConsoleOptions {
  bool live_line = false;    // stdout is a terminal
  bool live_errors = false;  // stderr is also a terminal
  bool prompts = false;      // rank 0 reads dsrun's standard input
  bool timestamps = false;   // before the ranks' lines
  bool colours = false;      // stderr is a terminal and NO_COLOR is unset
  int columns = 80;
  bool quiet = false;        // only notices of failures and the verdict
  bool errors_only = false;  // no progress; `shown` filters the ranks' output
  LogFilter shown;
  std::int64_t total_steps = 0;
};

// Determines the options from this process's streams and environment.
ConsoleOptions DetectConsole();

class Console {
 public:
  // `writer` and `clock` must outlive this object.
  Console(const ConsoleOptions& options, BacklogWriter* writer,
          const Clock& clock = Clock::System());

  void OnEvent(const HostEvent& event);
  // Shows output that was held back for merging with identical lines.
  void OnQuiet();
  void ShowNotice(const std::string& text);
  void ShowWarning(const std::string& text);  // shown even if quiet
  // Call when the job has ended. Shows all held output and the last step.
  void Finish();
  void ShowVerdict(const Verdict& verdict, const std::string& run_directory);
  // Shows a line of the closing summary, unless quiet.
  void ShowSummaryLine(const std::string& text);
  // Sets the width for the next drawing. A console whose standard output is a terminal reads the
  // width itself whenever it draws.
  void SetColumns(int columns) { columns_ = columns; }

  const Progress& progress() const { return progress_; }

 private:
  void OnOutput(const HostEvent& event);
  void ShowReport(const v1::RankReport& report);
  // Shows a message of a rank. It is dropped if a blocked console has filled the backlog.
  void ShowRemark(const std::string& text);
  void ShowExit(const std::string& host, const v1::RankExited& exit);
  void ShowUnfinished(std::vector<OutputChunk> chunks);
  void ShowLines(std::vector<TaggedText> lines);
  void OnStep(std::chrono::nanoseconds now);
  void Draw();
  // Draws unless it did just before.
  void DrawInTime(std::chrono::nanoseconds now);
  std::vector<std::string> LiveRows() const;
  std::string Erase();  // returns the codes that remove the live rows; "" if there are none
  std::string Bold(const std::string& text) const;

  const ConsoleOptions options_;
  BacklogWriter* const writer_;
  const Clock& clock_;
  int columns_;
  Progress progress_;
  UnfinishedLines unfinished_;
  LineCollapser collapser_;
  std::size_t rows_shown_ = 0;  // live rows on the screen
  std::optional<std::chrono::nanoseconds> last_drawn_;
  std::optional<std::int64_t> last_shown_step_;  // in plain lines
  std::chrono::nanoseconds last_shown_{};        // when that was
};

}  // namespace ds::cli
