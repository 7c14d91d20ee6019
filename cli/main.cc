#include <string>
#include <vector>

#include "cli/front_end.h"
#include "runtime/base/log.h"

int main(int argc, char** argv) {
  ds::InitLog("dsrun");
  return ds::cli::RunCommandLine(std::vector<std::string>(argv, argv + argc));
}
