#pragma once

// PlannedMemory trains small models, and holds what `dsrun estimate` and the job's own ranks have
// planned of their memory to what these measure.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace ds::testing {

struct Job {
  int stage = 0;
  bool bf16 = false;
  std::int64_t micro_batch = 1;
  std::int64_t accumulation = 1;
  std::string recompute = "none";
  int mlp_tiles = 1;
  std::string model = "gpt2";
  int ranks = 2;
  bool offload = false;  // to files
  double ratio = 1.0;    // offload_optimizer's
  bool updates_in_backward = false;
  bool rolls_back = false;  // such updates, where the norm is known
  std::string optimizer = "AdamW";
  int tensor = 1;
  int sequence = 1;
  std::string sequence_kind = "ulysses";
  int seq_len = 128;
  int stages = 1;
  std::string schedule = "1f1b";
  std::vector<std::string> trained = {};  // flags that say what
  bool partitions_activations = false;
  int buffered_parts = 0;                            // of these; 0: each has memory of its own
  bool documents = false;                            // several in a sample
  int expert = 1;                                    // ranks that have experts between them
  std::string tokens = {};                           // of this file; none: of a text
  nlohmann::json zero = nlohmann::json::object();    // more of it
  nlohmann::json config = nlohmann::json::object();  // more of all of it
};

// NameOf names its folder and files.
std::string NameOf(const Job& job);

// The parameter of suites that train jobs with several models: each job with each of them (in the
// nightly entry), or with one of them in turn.
class ModelChoice : public ::testing::WithParamInterface<bool> {
 protected:
  static bool chooses_every_model() { return GetParam(); }
  static std::vector<Job> WithModels(const std::vector<Job>& jobs,
                                     const std::vector<std::string>& models = {"gpt2", "llama"});
};

std::string NameModelChoice(const ::testing::TestParamInfo<bool>& info);

class PlannedMemory : public ::testing::Test {
 protected:
  // Writes the configs of small models, gpt2.json and llama.json.
  void SetUp() override;

  void Write(const std::string& name, const nlohmann::json& content) const;
  std::string PathOf(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string ModelOf(const Job& job) const;
  // Returns what dsrun is to be given to train the job, and writes its config.
  std::vector<std::string> TrainWords(const Job& job) const;
  nlohmann::json EstimateOf(const Job& job, const std::vector<std::string>& more = {}) const;

  // Trains the job for two steps. Both are held to the plan within 5 percent of it, and so is every
  // stage of a pipeline.
  void ExpectPlanned(const Job& job);
  // The metrics of the second of two steps.
  nlohmann::json MeasureStep(const Job& job);
  // The most that the first rank's tensors have held there, in bytes.
  double MeasurePeak(const Job& job);
  // Holds the bytes of a step's calls to the plan.
  static void ExpectPlannedTraffic(const Job& job, const nlohmann::json& measured,
                                   const nlohmann::json& planned);
  // Holds to it what every stage has said that it has measured.
  static void ExpectPlannedOnStages(const Job& job, const std::string& said);

  const TemporaryFolder folder_;
};

}  // namespace ds::testing
