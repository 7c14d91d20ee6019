#pragma once

// The facts of this host's dsrank and its LibTorch, found by reading the file or by running it.
//
// Errors are stored in DsrankFacts.problem. Thread-safe.

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "proto/host_facts.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

// Looks whether the file can be executed and finds its LibTorch, without starting it: the result
// has only `path`, `problem` and `hint`. `library_path` is the LD_LIBRARY_PATH of the ranks. "" =
// there is no dsrank.
v1::DsrankFacts FindDsrank(const std::filesystem::path& dsrank, const std::string& library_path);

// Runs `dsrank facts` and parses its output. It loads LibTorch, which takes up to a minute on a
// cold disk.
v1::DsrankFacts AskDsrank(const std::filesystem::path& dsrank, std::chrono::nanoseconds time_limit);

// Parses the output only. Missing fields stay empty; text that is no JSON object sets `problem`.
v1::DsrankFacts ParseDsrankFacts(std::string_view json_text);

}  // namespace ds::daemon
