#include "cli/flags/report_error.h"

#include <iostream>
#include <sstream>
#include <string>

#include "runtime/base/printable.h"

namespace ds::cli {

int ReportError(const Status& error, int exit_status) {
  std::istringstream lines(Printable(error.message()));
  for (std::string line; std::getline(lines, line);) std::cerr << "dsrun: " << line << "\n";
  std::cerr << std::flush;
  return exit_status;
}

}  // namespace ds::cli
