#pragma once

// SshTrainJob has what the tests of training on several hosts share: a small job, its command here
// and on the hosts, and what it leaves.

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/ssh_job.h"

namespace ds::testing {

class SshTrainJob : public SshJob {
 protected:
  // The words of `dsrun train` behind dsrun's own flags.
  std::vector<std::string> Train(int stage, bool bf16, int steps);
  // The whole command, in a run directory of its own. One thread a rank everywhere: sums within a
  // matrix product depend on their number.
  std::vector<std::string> OnHosts(const std::vector<std::string>& words,
                                   const std::vector<std::string>& flags = {});
  std::vector<std::string> OnThisHost(int ranks, const std::vector<std::string>& words);

  ProgramResult RunJob(const std::vector<std::string>& command);
  // Started, and behind its first step.
  std::unique_ptr<Program> StartJob(const std::vector<std::string>& command);
  // The same with so many ranks on each host, of a job that would go on for very long.
  std::unique_ptr<Program> Start(const std::vector<std::string>& flags = {}, int slots = 1);

  // All this is of the job that was started last.
  std::filesystem::path job() const {
    return (jobs_folder_.empty() ? folder() : jobs_folder_) / ("job" + std::to_string(jobs_));
  }
  std::vector<double> Losses();
  nlohmann::json JobVerdict() const;

  bool overlap_comm_ = true;           // of Train's config
  nlohmann::json zero_;                // more of its zero_optimization
  std::filesystem::path jobs_folder_;  // of the run directories; "" = folder()

 private:
  std::vector<std::string> Dsrun(const std::vector<std::string>& where,
                                 const std::vector<std::string>& flags,
                                 const std::vector<std::string>& words);

  int jobs_ = 0;
};

}  // namespace ds::testing
