#pragma once

// HostReport is the result of an inspection of one host. Plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "proto/dsrun.pb.h"
#include "proto/host_facts.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

struct HostReport {
  std::string host;  // as spelt in the hostfile
  v1::HostFacts facts;
  std::int64_t unix_nanos = 0;  // the clock of this machine when the host read its own
  std::vector<v1::Finding> findings = {};
};

}  // namespace ds::cli
