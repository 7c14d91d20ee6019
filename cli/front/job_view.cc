#include "cli/front/job_view.h"

#include "cli/job/verdict/verdict_message.h"

namespace ds::cli {
namespace {

void ShowOutcome(const v1::JobEnded& ended, const std::string& run_directory, Console* console) {
  console->Finish();
  for (const std::string& line : ended.summary()) console->ShowSummaryLine(line);
  if (ended.has_verdict()) {
    console->ShowVerdict(ReadVerdictMessage(ended.verdict()), run_directory);
  }
}

}  // namespace

void ShowOnConsole(const v1::FromAgent& message, const std::string& run_directory,
                   Console* console) {
  if (message.has_event()) {
    const v1::JobEvent& event = message.event();
    console->OnEvent({event.host(), event.generation(), event.event()});
  } else if (message.has_quiet()) {
    console->OnQuiet();
  } else if (message.has_text() && message.text().kind() == v1::JobText::WARNING) {
    console->ShowWarning(message.text().text());
  } else if (message.has_text()) {
    console->ShowNotice(message.text().text());
  } else if (message.has_ended()) {
    ShowOutcome(message.ended(), run_directory, console);
  }
}

}  // namespace ds::cli
