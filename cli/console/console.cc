#include "cli/console/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "runtime/base/files.h"

namespace ds::cli {
namespace {

constexpr std::int64_t kPlainEveryNanos = 5'000'000'000;
constexpr std::int64_t kDrawEveryNanos = 100'000'000;
constexpr const char* kEraseLine = "\r\x1b[K";

}  // namespace

ConsoleOptions DetectConsole() {
  ConsoleOptions options;
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  options.live_line = ::isatty(STDOUT_FILENO) == 1 && !dumb;
  options.colours = ::isatty(STDERR_FILENO) == 1 && !dumb && std::getenv("NO_COLOR") == nullptr;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = size.ws_col;
  }
  return options;
}

Console::Console(const ConsoleOptions& options, BacklogWriter* writer)
    : options_(options), writer_(writer), progress_(options.total_steps) {}

void Console::OnEvent(const HostEvent& event) {
  if (options_.quiet) {
    progress_.OnEvent(event.event);
    return;
  }
  if (event.event.has_rank_output()) {
    OnOutput(event);
    return;
  }
  if (event.event.has_rank_report()) ShowReport(event.event.rank_report());
  if (event.event.has_rank_exited()) ShowExit(event.host, event.event.rank_exited());
  if (progress_.OnEvent(event.event) && !options_.errors_only) OnStep(event.event.unix_nanos());
}

void Console::ShowReport(const v1::RankReport& report) {
  if (report.has_notice()) Notice(report.notice().text());
  if (report.has_checkpoint()) Notice("saved " + ShownPath(report.checkpoint().path()));
}

void Console::ShowExit(const std::string& host, const v1::RankExited& exit) {
  if (!exit.output_cut() || exit.stopping()) return;
  Notice("rank " + std::to_string(exit.rank()) + " on " + host +
         " has ended; what it left behind held its output open, wrote nothing for too long and was "
         "ended: its last output may be missing");
}

void Console::OnOutput(const HostEvent& event) {
  const v1::RankOutput& output = event.event.rank_output();
  const bool is_stderr = output.stream() == v1::RankOutput::STDERR;
  if (!options_.shown.Shows(static_cast<int>(output.rank()), is_stderr)) return;
  collapser_.Add({.text = output.data(),
                  .is_stderr = is_stderr,
                  .rank = static_cast<int>(output.rank()),
                  .host = event.host,
                  .unix_nanos = event.event.unix_nanos()});
  ShowLines(collapser_.TakeRipe(event.event.unix_nanos()));
}

void Console::OnQuiet() {
  ShowLines(collapser_.TakeAll());
  if (options_.live_line && !options_.quiet && !options_.errors_only) Draw();
}

void Console::ShowLines(std::vector<TaggedText> lines) {
  if (lines.empty()) return;
  if (std::string erase = Erase(); !erase.empty()) writer_->WriteAlways(STDOUT_FILENO, erase);
  for (TaggedText& piece : lines) {
    writer_->WriteLines(piece.is_stderr ? STDERR_FILENO : STDOUT_FILENO, std::move(piece.text));
  }
}

void Console::OnStep(std::int64_t unix_nanos) {
  const std::int64_t every = options_.live_line ? kDrawEveryNanos : kPlainEveryNanos;
  const bool first = !last_shown_step_.has_value();
  if (!first && !progress_.finished() && unix_nanos - last_shown_nanos_ < every) return;
  last_shown_step_ = progress_.step();
  last_shown_nanos_ = unix_nanos;
  if (options_.live_line) {
    Draw();
  } else {
    ShowLines(collapser_.TakeAll());
    writer_->WriteLines(STDOUT_FILENO, progress_.Line() + "\n");
  }
}

void Console::Draw() {
  std::string line = progress_.Line();
  if (line.empty()) return;
  // One column stays free: a terminal may wrap when its last one is filled.
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(1, options_.columns - 1))));
  writer_->WriteLines(STDOUT_FILENO, kEraseLine + line);
  line_shown_ = true;
}

std::string Console::Erase() {
  const bool shown = line_shown_;
  line_shown_ = false;
  return shown ? kEraseLine : "";
}

std::string Console::Bold(const std::string& text) const {
  return options_.colours ? "\x1b[1;31m" + text + "\x1b[0m" : text;
}

void Console::Notice(const std::string& text) {
  if (options_.quiet) return;
  ShowLines(collapser_.TakeAll());
  if (std::string erase = Erase(); !erase.empty()) writer_->WriteAlways(STDOUT_FILENO, erase);
  writer_->WriteAlways(STDERR_FILENO, "dsrun: " + text + "\n");
}

void Console::Finish() {
  ShowLines(collapser_.TakeAll());
  std::string rest = Erase();
  const bool shown = !options_.live_line && progress_.step() == last_shown_step_;
  const bool wanted = !options_.quiet && !options_.errors_only;
  if (progress_.step().has_value() && !shown && wanted) rest += progress_.Line() + "\n";
  writer_->WriteAlways(STDOUT_FILENO, rest);
}

void Console::ShowVerdict(const Verdict& verdict, const std::string& run_directory) {
  std::string block = verdict.cause == Cause::kUserStop
                          ? "dsrun: " + verdict.message + "\n"
                          : "dsrun: " + Bold("the job failed") + ": " + verdict.message + "\n";
  const auto row = [&block](const char* name, const std::string& value) {
    if (!value.empty()) block += std::string("  ") + name + value + "\n";
  };
  row("cause      ", std::string(CauseName(verdict.cause)));
  row("where      ", verdict.rank < 0 ? verdict.host
                                      : "rank " + std::to_string(verdict.rank) + " on " +
                                            verdict.host + ", pid " + std::to_string(verdict.pid) +
                                            ", generation " + std::to_string(verdict.generation));
  row("last step  ", verdict.step.has_value() ? std::to_string(*verdict.step) : "");
  row("proof      ", verdict.proof);
  if (!verdict.last_lines.empty()) block += "  its last lines:\n";
  for (const std::string& line : verdict.last_lines) block += "    | " + line + "\n";
  row("what to do ", verdict.hint);
  row("files      ", ShownPath(run_directory));
  row("status     ", std::to_string(verdict.exit_code));
  writer_->WriteAlways(STDERR_FILENO, block);
}

void Console::Summary(const std::string& text) {
  if (!options_.quiet) writer_->WriteAlways(STDOUT_FILENO, text + "\n");
}

}  // namespace ds::cli
