#pragma once

// Compares the Python interpreters of a job's hosts.
//
// Pure.

#include <string>
#include <vector>

#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

struct HostPython {
  std::string host;
  v1::Python python;
};

// Returns a warning that names two hosts with different versions of Python or PyTorch; "" if all
// are the same.
std::string ExplainPythonDifference(const std::vector<HostPython>& hosts);

}  // namespace ds::cli
