#pragma once

// Shorthand for the events a daemon sends.

#include <string>

#include "proto/dsrun.pb.h"

namespace ds::cli::testing {

namespace v1 = ::dsrun::v1;

inline v1::Event Started(int rank, int pid) {
  v1::Event event;
  event.mutable_rank_started()->set_rank(rank);
  event.mutable_rank_started()->set_pid(pid);
  return event;
}

inline v1::Event Output(int rank, const std::string& data, bool is_stderr = false) {
  v1::Event event;
  event.mutable_rank_output()->set_rank(rank);
  event.mutable_rank_output()->set_data(data);
  event.mutable_rank_output()->set_stream(is_stderr ? v1::RankOutput::STDERR
                                                    : v1::RankOutput::STDOUT);
  return event;
}

inline v1::Event Report(int rank, const std::string& kind, const std::string& body) {
  v1::Event event;
  event.mutable_rank_report()->set_rank(rank);
  event.mutable_rank_report()->set_kind(kind);
  event.mutable_rank_report()->set_body(body);
  return event;
}

inline v1::Event Exited(int rank, int exit_code, int signal = 0, bool stopping = false) {
  v1::Event event;
  v1::RankExited* exit = event.mutable_rank_exited();
  exit->set_rank(rank);
  exit->set_pid(1000 + rank);
  exit->set_exit_code(exit_code);
  exit->set_signal(signal);
  exit->set_stopping(stopping);
  return event;
}

inline v1::Event Ended(int generation = 0) {
  v1::Event event;
  event.mutable_job_ended()->set_generation(generation);
  return event;
}

inline v1::Event At(std::int64_t unix_nanos, v1::Event event) {
  event.set_unix_nanos(unix_nanos);
  return event;
}

}  // namespace ds::cli::testing
