#pragma once

// Console: what the user sees of a running job.
//
// A terminal has one live line (progress.h), which is redrawn below the ranks' output, and one for
// every line that a rank has begun and not ended (unfinished_lines.h); elsewhere a plain line
// appears for the first and the last step and every few seconds between. Output of ranks is
// prefixed `rank@host`, identical lines of many ranks become one. Progress and standard output go
// to stdout; notices, the verdict and standard error to stderr. What dsrun says itself holds no
// control characters of anybody's (runtime/base/printable.h); the ranks' output is theirs.
//
// Threads: one at a time.

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

namespace ds::cli {

struct ConsoleOptions {
  bool live_line = false;    // stdout is a terminal
  bool live_errors = false;  // ... and stderr, too
  bool prompts = false;      // rank 0 reads dsrun's standard input
  bool timestamps = false;   // in front of the ranks' lines
  bool colours = false;      // stderr is a terminal and NO_COLOR is unset
  int columns = 80;
  bool quiet = false;        // only notices of failures and the verdict
  bool errors_only = false;  // no progress; what the ranks' output is, `shown` says
  LogFilter shown;
  std::int64_t total_steps = 0;
};

// Finds out what this process's streams and environment allow.
ConsoleOptions DetectConsole();

class Console {
 public:
  // `writer` outlives the console.
  Console(const ConsoleOptions& options, BacklogWriter* writer);

  void OnEvent(const HostEvent& event);
  // Shows the output that waits for others like it.
  void OnQuiet();
  void ShowNotice(const std::string& text);
  void ShowWarning(const std::string& text);  // when quiet, too
  // The job has ended: shows all that waits and the last step.
  void Finish();
  void ShowVerdict(const Verdict& verdict, const std::string& run_directory);
  // A line of the closing summary; not when quiet.
  void ShowSummaryLine(const std::string& text);

  const Progress& progress() const { return progress_; }

 private:
  void OnOutput(const HostEvent& event);
  void ShowReport(const v1::RankReport& report);
  // Shows what a rank has to say: that may be a lot, and a blocked console must not keep it all.
  void ShowRemark(const std::string& text);
  void ShowExit(const std::string& host, const v1::RankExited& exit);
  void ShowUnfinished(std::vector<OutputChunk> chunks);
  void ShowLines(std::vector<TaggedText> lines);
  void OnStep(std::int64_t unix_nanos);
  void Draw();
  void DrawNow(std::int64_t unix_nanos);
  std::vector<std::string> LiveRows() const;
  std::string Erase();  // what removes the live rows, "" when there are none
  std::string Bold(const std::string& text) const;

  const ConsoleOptions options_;
  BacklogWriter* const writer_;
  Progress progress_;
  UnfinishedLines unfinished_;
  LineCollapser collapser_;
  std::size_t rows_shown_ = 0;  // live ones, on the screen
  std::int64_t last_drawn_nanos_ = 0;
  std::optional<std::int64_t> last_shown_step_;  // of the plain lines
  std::int64_t last_shown_nanos_ = 0;
};

}  // namespace ds::cli
