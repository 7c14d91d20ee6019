#pragma once

// InspectHost reads all facts of this host. Parts that may take long or hang (folders, programs)
// are read in parallel, each on a thread of its own.
//
// Starts only programs that answer questions (`dsrank facts`, nvidia-smi, the Python interpreter),
// and changes nothing. Thread-safe.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/dsrun.pb.h"
#include "proto/host_facts.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

struct InspectOptions {
  std::string dsrun_version;             // of this program
  std::vector<std::string> environment;  // of the programs: "NAME=value"
  std::filesystem::path dsrank;          // the expected location
  std::string working_directory;         // of the ranks; "" = not inspected
  std::string run_directory;             // need not exist; "" = not inspected
  std::string python;                    // an interpreter; "" = not asked
  // These override variables of `environment` for the interpreter.
  google::protobuf::RepeatedPtrField<v1::EnvironmentVariable> exports = {};
  std::optional<std::uint64_t> open_files_of_ranks = {};  // nullopt: those of this process
  bool looks_at_cache = false;                            // dsrun's own folder, for other hosts
};

// Returns at the deadline at the latest. A part that has not answered by then is named in
// HostFacts.unanswered; its thread is left behind, because it may hang for ever.
v1::HostFacts InspectHost(const InspectOptions& options,
                          std::chrono::steady_clock::time_point deadline);

// A part of the facts. `read` owns its data.
struct FactsPart {
  std::string name;  // "working directory /data on nfs4"
  std::string hint;  // the remedy if it does not answer
  std::function<void(v1::HostFacts*)> read;
};
// Reads the parts and merges them. Each part sets fields that no other one sets.
v1::HostFacts ReadParts(std::vector<FactsPart> parts,
                        std::chrono::steady_clock::time_point deadline);

}  // namespace ds::daemon
