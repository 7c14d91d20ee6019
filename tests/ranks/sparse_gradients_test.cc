// sparse_gradients: the rows that travel give what whole tables give.

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "runtime/comm/communicator.h"
#include "runtime/models/kernels/matmul.h"
#include "runtime/models/layers/layers.h"
#include "runtime/zero/exchange/sparse_rows.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr std::int64_t kRows = 50, kWidth = 8;

// The same bits, NaN included.
bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.view(at::kInt).equal(b.view(at::kInt));
}

TEST(AllReduceRows, MatchesAllReduce) {
  testing::RunRanks(3, [](comm::Communicator& world) {
    device::MemoryLedger ledger;
    const zero::Context context{.groups = {.all = &world, .gradients = &world, .shards = &world},
                                .ledger = &ledger};
    at::Tensor table = at::zeros({kRows, kWidth});
    // Rank r touches rows 5, 10 + r and, with something that is not finite, 20.
    for (const int row : {5, 10 + world.rank()}) table[row].copy_(at::randn({kWidth}));
    if (world.rank() == 1) table[20][3].fill_(std::numeric_limits<float>::quiet_NaN());
    for (const comm::ReduceOp op : {comm::ReduceOp::kSum, comm::ReduceOp::kAvg}) {
      const at::Tensor dense = table.clone(), sparse = table.clone();
      world.AllReduce(dense, op);
      const std::int64_t bytes = zero::AllReduceRows(context, sparse, op);
      EXPECT_TRUE(SameBits(sparse, dense));
      EXPECT_EQ(bytes, kRows + 5 * kWidth * 4) << "five rows instead of fifty";
    }
    EXPECT_EQ(zero::AllReduceRows(context, at::zeros({kRows, kWidth}), comm::ReduceOp::kSum),
              kRows);
    EXPECT_EQ(ledger.Bytes(device::MemoryUse::kCommBuffers, device::MemoryTier::kHost), 0);
  });
}

class Table : public Block {
 public:
  Table()
      : Block("table"),
        embedding_(register_module("embedding", std::make_shared<models::Embedding>(
                                                    models::Embedding::Shape{kRows, kWidth},
                                                    at::TensorOptions(at::kFloat)))) {}
  Bundle forward(Bundle bundle) override {
    bundle.hidden = embedding_->forward(bundle.tensor("input"));
    return bundle;
  }

 private:
  std::shared_ptr<models::Embedding> embedding_;
};

class Classes : public Block {
 public:
  Classes()
      : Block("head"),
        linear_(register_module("linear", std::make_shared<models::Linear>(
                                              models::Linear::Shape{.in = kWidth, .out = 4},
                                              at::TensorOptions(at::kFloat)))) {}
  Bundle forward(Bundle bundle) override {
    bundle.loss = at::cross_entropy_loss(linear_->forward(bundle.hidden),
                                         bundle.tensor("input").remainder(4));
    return bundle;
  }

 private:
  std::shared_ptr<models::Linear> linear_;
};

std::map<std::string, at::Tensor> Train(comm::Communicator& world, const config::DsConfig& config) {
  auto model = std::make_shared<BlockList>();
  model->Add(std::make_shared<Table>());
  model->Add(std::make_shared<Classes>());
  const auto engine = Engine::create(model, config, {.world = &world}).value();
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < config.batch.gradient_accumulation_steps; ++i) {
      const at::Tensor ids = at::arange(6, at::kLong).mul(world.rank() + 2).add(step + i);
      engine->backward(engine->forward({.batch = {{"input", ids}}}));
    }
    EXPECT_TRUE(engine->step().value().boundary);
  }
  return ExportAll(*engine);
}

TEST(SparseGradients, TrainToTheSameBits) {
  testing::RunRanks(3, [](comm::Communicator& world) {
    for (const std::int64_t accumulation : {1, 2}) {
      for (const auto reduction : {config::DataType::kFp32, config::DataType::kBf16}) {
        config::DsConfig config = TinyConfig({.accumulation = accumulation});
        config.communication_data_type = reduction;
        const auto dense = Train(world, config);
        config.sparse_gradients = true;
        const auto sparse = Train(world, config);
        for (const auto& [name, value] : dense) {
          EXPECT_TRUE(SameBits(sparse.at(name), value)) << name;
        }
      }
    }
  });
}

}  // namespace
}  // namespace ds::tests
