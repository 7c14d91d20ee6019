#include "cli/flags/report_error.h"

#include <iostream>
#include <sstream>
#include <string>

#include "runtime/base/printable.h"

namespace ds::cli {

void ReportNotices(const std::vector<std::string>& notices) {
  for (const std::string& notice : notices) {
    std::istringstream lines(Printable(notice));
    for (std::string line; std::getline(lines, line);) std::cerr << "dsrun: " << line << "\n";
  }
  std::cerr << std::flush;
}

int ReportError(const Status& error, int exit_status) {
  ReportNotices({error.message()});
  return exit_status;
}

}  // namespace ds::cli
