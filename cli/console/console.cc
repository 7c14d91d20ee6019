#include "cli/console/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

constexpr std::chrono::milliseconds kPlainEvery{5'000};
constexpr std::chrono::milliseconds kDrawEvery{100};
constexpr std::size_t kMaxLiveLines = 8;
constexpr const char* kEraseLine = "\r\x1b[K";
constexpr const char* kEraseLineAbove = "\x1b[1A\x1b[K";
constexpr const char* kNextLine = "\n             ";  // of a value in the verdict block

// The width of the terminal at standard output; nothing if that is another thing.
std::optional<int> ReadColumns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace

ConsoleOptions DetectConsole() {
  ConsoleOptions options;
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  options.live_line = ::isatty(STDOUT_FILENO) == 1 && !dumb;
  options.live_errors = options.live_line && ::isatty(STDERR_FILENO) == 1;
  options.colours = ::isatty(STDERR_FILENO) == 1 && !dumb && std::getenv("NO_COLOR") == nullptr;
  options.columns = ReadColumns().value_or(options.columns);
  return options;
}

Console::Console(const ConsoleOptions& options, BacklogWriter* writer, const Clock& clock)
    : options_(options),
      writer_(writer),
      clock_(clock),
      columns_(options.columns),
      progress_(options.total_steps),
      unfinished_({.redraws_out = options.live_line,
                   .redraws_err = options.live_line && options.live_errors,
                   .prompts = options.prompts}),
      collapser_(options.timestamps) {}

void Console::OnEvent(const HostEvent& event) {
  if (options_.quiet) {
    progress_.OnEvent(event.event, clock_.Now());
    if (event.event.has_rank_exited()) ShowExit(event.host, event.event.rank_exited());
    return;
  }
  if (event.event.has_rank_output()) {
    OnOutput(event);
    return;
  }
  if (event.event.has_rank_exited()) {
    ShowUnfinished(unfinished_.TakeRank(static_cast<int>(event.event.rank_exited().rank())));
  }
  if (event.event.has_rank_report()) ShowReport(event.event.rank_report());
  if (event.event.has_rank_exited()) ShowExit(event.host, event.event.rank_exited());
  const std::chrono::nanoseconds now = clock_.Now();
  if (progress_.OnEvent(event.event, now) && !options_.errors_only) OnStep(now);
}

void Console::ShowReport(const v1::RankReport& report) {
  if (report.has_notice()) ShowRemark(report.notice().text());
  if (report.has_checkpoint()) ShowRemark("saved " + ShortenPath(report.checkpoint().path()));
}

void Console::ShowExit(const std::string& host, const v1::RankExited& exit) {
  if (!exit.output_cut() || exit.stopping()) return;
  ShowWarning("rank " + std::to_string(exit.rank()) + " on " + host +
              " has exited; the processes that it left held its output open for too long and were "
              "ended: its last output may be missing");
}

void Console::OnOutput(const HostEvent& event) {
  const v1::RankOutput& output = event.event.rank_output();
  const bool is_stderr = output.stream() == v1::RankOutput::STDERR;
  if (!options_.shown.Shows(static_cast<int>(output.rank()), is_stderr)) return;
  OutputChunk chunk{.text = output.data(),
                    .is_stderr = is_stderr,
                    .rank = static_cast<int>(output.rank()),
                    .host = event.host,
                    .unix_nanos = event.event.unix_nanos()};
  unfinished_.Add(&chunk, output.partial());
  if (!chunk.text.empty()) collapser_.Add(std::move(chunk));
  ShowLines(collapser_.TakeRipe(event.event.unix_nanos()));
  if (output.partial() && options_.live_line) DrawInTime(clock_.Now());
}

void Console::ShowUnfinished(std::vector<OutputChunk> chunks) {
  for (OutputChunk& chunk : chunks) collapser_.Add(std::move(chunk));
}

void Console::OnQuiet() {
  ShowLines(collapser_.TakeAll());
  if (options_.live_line && !options_.quiet) Draw();
}

void Console::ShowLines(std::vector<TaggedText> lines) {
  if (lines.empty()) return;
  if (std::string erase = Erase(); !erase.empty()) writer_->WriteAlways(STDOUT_FILENO, erase);
  for (TaggedText& piece : lines) {
    writer_->WriteLines(piece.is_stderr ? STDERR_FILENO : STDOUT_FILENO, std::move(piece.text));
  }
}

void Console::OnStep(std::chrono::nanoseconds now) {
  const std::chrono::milliseconds every = options_.live_line ? kDrawEvery : kPlainEvery;
  const bool first = !last_shown_step_.has_value();
  if (!first && !progress_.finished() && now - last_shown_ < every) return;
  last_shown_step_ = progress_.step();
  last_shown_ = now;
  if (options_.live_line) {
    Draw();
  } else {
    ShowLines(collapser_.TakeAll());
    writer_->WriteLines(STDOUT_FILENO, progress_.Line() + "\n");
  }
}

// One column stays free, because a terminal may wrap when its last column is filled.
std::vector<std::string> Console::LiveRows() const {
  const int columns = std::max(1, columns_ - 1);
  std::vector<std::string> rows;
  if (!options_.errors_only && !progress_.Line().empty()) {
    rows.push_back(FitRow(progress_.Line(), columns));
  }
  const std::vector<const OutputChunk*> lines = unfinished_.Shown();
  // Shows the rows of the lowest ranks, rank 0 last.
  const std::size_t hidden = lines.size() - std::min(lines.size(), kMaxLiveLines);
  if (hidden > 0) {
    rows.push_back(FitRow("(and " + std::to_string(hidden) + " more unfinished lines)", columns));
  }
  for (std::size_t i = hidden; i < lines.size(); ++i) {
    rows.push_back(FitRow(
        std::to_string(lines[i]->rank) + "@" + lines[i]->host + ": " + lines[i]->text, columns));
  }
  return rows;
}

void Console::Draw() {
  SetColumns(ReadColumns().value_or(columns_));
  const std::vector<std::string> rows = LiveRows();
  const std::size_t before = rows_shown_;
  std::string text = Erase();
  if (rows.empty() && text.empty()) return;
  if (text.empty()) text = kEraseLine;
  for (std::size_t i = 0; i < rows.size(); ++i) text += (i == 0 ? "" : "\n") + rows[i];
  rows_shown_ = writer_->WriteRows(STDOUT_FILENO, text) ? rows.size() : before;
}

void Console::DrawInTime(std::chrono::nanoseconds now) {
  if (last_drawn_.has_value() && now - *last_drawn_ < kDrawEvery) return;
  last_drawn_ = now;
  Draw();
}

std::string Console::Erase() {
  if (rows_shown_ == 0) return "";
  std::string erase = kEraseLine;
  for (; rows_shown_ > 1; --rows_shown_) erase += kEraseLineAbove;
  rows_shown_ = 0;
  return erase;
}

std::string Console::Bold(const std::string& text) const {
  return options_.colours ? "\x1b[1;31m" + text + "\x1b[0m" : text;
}

void Console::ShowRemark(const std::string& text) {
  if (options_.quiet) return;
  ShowLines(collapser_.TakeAll());
  if (std::string erase = Erase(); !erase.empty()) writer_->WriteAlways(STDOUT_FILENO, erase);
  writer_->WriteLines(STDERR_FILENO, "dsrun: " + Printable(text) + "\n");
}

void Console::ShowNotice(const std::string& text) {
  if (!options_.quiet) ShowWarning(text);
}

void Console::ShowWarning(const std::string& text) {
  ShowLines(collapser_.TakeAll());
  if (std::string erase = Erase(); !erase.empty()) writer_->WriteAlways(STDOUT_FILENO, erase);
  writer_->WriteAlways(STDERR_FILENO, "dsrun: " + Printable(text) + "\n");
}

void Console::Finish() {
  ShowUnfinished(unfinished_.TakeAll());
  ShowLines(collapser_.TakeAll());
  std::string rest = Erase();
  const bool shown = !options_.live_line && progress_.step() == last_shown_step_;
  const bool wanted = !options_.quiet && !options_.errors_only;
  if (progress_.step().has_value() && !shown && wanted) rest += progress_.Line() + "\n";
  writer_->WriteAlways(STDOUT_FILENO, rest);
}

void Console::ShowVerdict(const Verdict& verdict, const std::string& run_directory) {
  std::string block =
      verdict.cause == Cause::kUserStop ? "dsrun: " : "dsrun: " + Bold("the job failed") + ": ";
  block += Printable(verdict.message) + "\n";
  const auto row = [&block](const std::string& name, const std::string& value) {
    if (value.empty()) return;
    block += "  " + name;
    for (const char c : Printable(value)) block += c == '\n' ? kNextLine : std::string(1, c);
    block += "\n";
  };
  row("cause      ", std::string(CauseName(verdict.cause)));
  row("where      ", verdict.rank < 0 ? verdict.host
                                      : "rank " + std::to_string(verdict.rank) + " on " +
                                            verdict.host + ", pid " + std::to_string(verdict.pid) +
                                            ", generation " + std::to_string(verdict.generation));
  row("last step  ", verdict.step.has_value() ? std::to_string(*verdict.step) : "");
  row("proof      ", verdict.proof);
  if (!verdict.last_lines.empty()) block += "  its last lines:\n";
  for (const std::string& line : verdict.last_lines)
    block += "    | " + Printable(LastDrawn(line)) + "\n";
  row("what to do ", verdict.hint);
  row("files      ", ShortenPath(run_directory));
  row("status     ", std::to_string(verdict.exit_code));
  writer_->WriteAlways(STDERR_FILENO, block);
}

void Console::ShowSummaryLine(const std::string& text) {
  if (!options_.quiet) writer_->WriteAlways(STDOUT_FILENO, Printable(text) + "\n");
}

}  // namespace ds::cli
