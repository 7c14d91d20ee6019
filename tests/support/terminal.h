#pragma once

// A pseudo terminal for tests: what is typed into it, and its hang-up.

#include <fcntl.h>
#include <stdlib.h>
#include <termios.h>

#include <stdexcept>
#include <string_view>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"

namespace ds::testing {

class Terminal {
 public:
  Terminal() : keyboard_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (!keyboard_.valid() || ::grantpt(keyboard_.get()) != 0 || ::unlockpt(keyboard_.get()) != 0) {
      throw std::runtime_error("no pseudo terminal");
    }
    program_end_.Reset(::open(::ptsname(keyboard_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  }

  // For ProgramOptions::input_fd.
  int fd() const { return program_end_.get(); }
  void Type(std::string_view text) {
    if (!WriteAll(keyboard_.get(), text, "terminal").ok()) throw std::runtime_error("typing");
  }
  void Close() {
    program_end_.Reset();
    keyboard_.Reset();
  }

 private:
  UniqueFd keyboard_;
  UniqueFd program_end_;
};

}  // namespace ds::testing
