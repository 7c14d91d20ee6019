#pragma once

// CurriculumOrder: finds the sample at a position of a training stream when samples become eligible
// step by step. As in DeepSpeed's DeepSpeedDataSampler, the samples that become eligible in one
// step form a cluster. Each step takes samples of every cluster in proportion to its size, and no
// sample of a cluster repeats before the full cluster has been used.
//
// DeepSpeed draws the number of samples per cluster at random, so shares hold on average. Here they
// hold for every stretch of the stream (sampler.h), and each position is computed independently.
// From a cluster's first position on, the cluster and the previous stream are interleaved: the
// previous stream continues at the positions that the cluster does not take.
//
// Not thread-safe; shuffled clusters cache their permutations.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/data/sampler.h"

namespace ds::data {

class CurriculumOrder {
 public:
  // Sample i is eligible from step first_steps[i] on, counted from 1, or never (kNever). A step has
  // `samples_per_step` positions. Returns an error if no sample is eligible in the first step.
  static StatusOr<CurriculumOrder> Create(std::span<const std::int64_t> first_steps,
                                          std::int64_t samples_per_step,
                                          const Sampler::Options& order);

  // Requires position >= 0.
  std::int64_t At(std::int64_t position);

  // Growth: `first` samples are eligible in the first step, `last` samples from step `last_step`
  // on.
  struct Growth {
    std::int64_t first = 0, last = 0, last_step = 1;
  };
  Growth growth() const;

  // Returns a checksum of the samples and the positions from which they are eligible.
  std::uint32_t fingerprint() const { return fingerprint_; }

 private:
  struct Cluster {
    std::int64_t first_position = 0;  // position in the stream
    std::size_t first = 0;            // index in samples_
    Sampler order;
    Blend shares;  // of the previous stream and this cluster; the first cluster has one share
  };
  CurriculumOrder() = default;
  void AddCluster(std::int64_t first_position, std::size_t first, std::size_t end,
                  Sampler::Options order);

  std::int64_t samples_per_step_ = 1;
  std::vector<std::int64_t> samples_;  // cluster by cluster
  std::vector<Cluster> clusters_;
  std::uint32_t fingerprint_ = 0;
};

}  // namespace ds::data
