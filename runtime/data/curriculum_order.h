#pragma once

// CurriculumOrder: finds the sample at a place of a training stream whose samples become eligible
// step by step, as DeepSpeed's DeepSpeedDataSampler has it: those that become so in one step are a
// cluster, each step takes of every cluster in proportion to its size, and no sample of a cluster
// comes again before all of it have.
//
// DeepSpeed draws how many a batch takes of each cluster, so that shares hold on average; here they
// hold for every stretch of the stream (sampler.h), and each place is found on its own: before a
// cluster there is a stream, which goes on behind it in the places that the cluster leaves.
//
// Threads: one at a time; shuffled clusters remember their permutations.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/data/sampler.h"

namespace ds::data {

class CurriculumOrder {
 public:
  // Sample i is eligible from step first_steps[i] on, counted from 1, or never (kNever). A step is
  // so many places. Refuses samples of which the first step has none.
  static StatusOr<CurriculumOrder> Create(std::span<const std::int64_t> first_steps,
                                          std::int64_t samples_per_step,
                                          const Sampler::Options& order);

  // Requires place >= 0.
  std::int64_t At(std::int64_t place);

  // Counts samples that are eligible in the first step, and from `last_step` on for ever.
  struct Growth {
    std::int64_t first = 0, last = 0, last_step = 1;
  };
  Growth growth() const;

  // A checksum of which samples become eligible where.
  std::uint32_t fingerprint() const { return fingerprint_; }

 private:
  struct Cluster {
    std::int64_t first_place = 0;  // of the stream
    std::size_t first = 0;         // of samples_
    Sampler order;
    Blend shares;  // of the stream before it, and of it; of the first cluster alone
  };
  CurriculumOrder() = default;
  void AddCluster(std::int64_t first_place, std::size_t first, std::size_t end,
                  Sampler::Options order);

  std::int64_t samples_per_step_ = 1;
  std::vector<std::int64_t> samples_;  // cluster by cluster
  std::vector<Cluster> clusters_;
  std::uint32_t fingerprint_ = 0;
};

}  // namespace ds::data
