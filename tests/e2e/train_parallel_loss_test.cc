// Ranks that have one model and the same samples between them, one of which is killed, end to end:
// first stage, tensor peer, last stage, a peer of the same samples that has other heads, one that
// keys and values go past. It is named, all others end, and the job goes on to the numbers of one
// that lost nobody.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/e2e/train_fixture.h"

namespace ds::testing {
namespace {

struct Role {
  const char* name;
  int rank;
  std::vector<std::string> split;
};

class ParallelLossTest : public TrainTest, public ::testing::WithParamInterface<Role> {
 protected:
  static int lost() { return GetParam().rank; }
  std::vector<std::string> TrainSplit(std::vector<std::string> more) const {
    more.insert(more.end(), {"--gradient_accumulation_steps", "2"});
    more.insert(more.end(), GetParam().split.begin(), GetParam().split.end());
    return Train(4, 1, std::move(more));
  }
};

TEST_P(ParallelLossTest, ALostRankIsNamedAndTheOthersEnd) {
  ExpectALostRankIsNamed(TrainSplit({"--steps", "100000"}), /*ranks=*/4, lost());
}

TEST_P(ParallelLossTest, TheJobIsRestartedAndItsLossesAreThoseOfAnUndisturbedOne) {
  ExpectARestartChangesNoLoss(TrainSplit({"--steps", "40"}), /*save_every=*/10, lost());
}

std::string NameRole(const ::testing::TestParamInfo<Role>& info) { return info.param.name; }

const std::vector<std::string> kStagesOfTensorRanks = {"--pp", "2", "--tp", "2"};

INSTANTIATE_TEST_SUITE_P(
    Roles, ParallelLossTest,
    ::testing::Values(Role{"FirstStage", 0, kStagesOfTensorRanks},
                      Role{"TensorPeer", 1, kStagesOfTensorRanks},
                      Role{"LastStage", 3, kStagesOfTensorRanks},
                      Role{"SequencePeer", 2, {"--sp", "2"}},
                      Role{"PlaceOfARing", 1, {"--sp", "4", "--sp_kind", "ring"}}),
    NameRole);

}  // namespace
}  // namespace ds::testing
