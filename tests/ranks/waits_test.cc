// What a step asks the host to know of its tensors: on a GPU each would be a wait for all that has
// been issued before.

#include <ATen/ops/full.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "tests/ranks/decoder_run.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

// ReadCalls counts, while it lives, this thread's calls of operators whose results are numbers of
// the host or of shapes that follow from values.
class ReadCalls {
 public:
  ReadCalls() : counted_before_(std::exchange(counts_, this)) {}
  ~ReadCalls() {
    at::removeCallback(handle_);
    counts_ = counted_before_;
  }
  ReadCalls(const ReadCalls&) = delete;
  ReadCalls& operator=(const ReadCalls&) = delete;

  int count() const { return count_; }
  const std::string& names() const { return names_; }

 private:
  static std::unique_ptr<at::ObserverContext> OnCall(const at::RecordFunction& call) {
    constexpr std::string_view kReads[] = {"aten::_local_scalar_dense", "aten::equal",
                                           "aten::is_nonzero",          "aten::nonzero",
                                           "aten::masked_select",       "aten::bincount"};
    for (const std::string_view read : kReads) {
      if (call.name() != read) continue;
      ++counts_->count_;
      counts_->names_ += std::string(read) + " ";
    }
    return nullptr;
  }

  static thread_local ReadCalls* counts_;
  ReadCalls* const counted_before_;
  int count_ = 0;
  std::string names_;
  const at::CallbackHandle handle_ =
      at::addThreadLocalCallback(at::RecordFunctionCallback(&OnCall));
};
thread_local ReadCalls* ReadCalls::counts_ = nullptr;

TEST(ReadCalls, SeesTheExpectedCalls) {
  const at::Tensor value = at::full({2}, 3.0);
  const ReadCalls reads;
  EXPECT_EQ(value[1].item<float>(), 3.0F);
  static_cast<void>(value.nonzero());
  EXPECT_EQ(reads.count(), 2) << reads.names();
}

class Waits : public ::testing::TestWithParam<int> {};

// The one is the factor that the loss is given on the way back, which a device is not asked for.
TEST_P(Waits, ADecodersMicroBatchAsksOnce) {
  for (const char* model : {kLlamaDecoder, kDroppingDecoder, kWindowedDecoder}) {
    for (const bool packed : {false, true}) {
      const DecoderRun run{
          .model = model, .stage = GetParam(), .accumulation = 2, .packed = packed};
      testing::RunRanks(2, [&](comm::Communicator& world) {
        const auto engine = MakeDecoderEngine(run, world);
        TrainDecoder(*engine, run, 1);
        const ReadCalls reads;
        TrainDecoder(*engine, run, 2);
        EXPECT_LE(reads.count(), run.accumulation) << reads.names();
      });
    }
  }
}

TEST_P(Waits, NoOtherCodeAsksTheDecidingClass) {
  for (const bool on_device : {false, true}) {
    const TinyRun run{.stage = GetParam(), .decides_on_device = on_device};
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const auto engine = MakeTinyEngine(run, world);
      TrainTiny(*engine, run, 1);
      const ReadCalls reads;
      TrainTiny(*engine, run, 2);
      EXPECT_EQ(reads.count(), 0) << reads.names();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Waits, ::testing::Range(0, 4));

// Labels that somebody has measured are not measured again; parts of them, or others, are.
TEST(Waits, LabelsAreCountedWhereTheyWereOnTheHost) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    const DecoderRun run{.model = kLlamaDecoder};
    const auto engine = MakeDecoderEngine(run, world);
    const at::Tensor ids = at::full({2, 12}, 7, at::kLong);
    const auto loss_of = [&](std::optional<models::MeasuredLabels> measured) {
      const c10::NoGradGuard evaluates;
      return engine
          ->forward(
              {.batch = {{"tokens", ids}, {"labels", ids}}, .measured_labels = std::move(measured)})
          .item<double>();
    };
    const double loss = loss_of({});
    const models::LabelRange twice{.count = 48, .least = 0, .most = 7};
    EXPECT_NEAR(loss_of({{ids, twice}}), loss / 2, 1e-6);
    EXPECT_EQ(loss_of({{ids.clone(), twice}}), loss);
  });
}

}  // namespace
}  // namespace ds::tests
