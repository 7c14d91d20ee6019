// The chat templates that the package trl holds, those of the families that it trains: their texts
// are those of transformers, and the learnt words those of its training templates.
//
// DS_PEER_PYTHON names a python with transformers and trl; without it that of
// scripts/bench/setup_peers.sh is taken. Only the files of trl are read.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/support/span_goldens.h"

namespace ds::testing {
namespace {

constexpr char kHasTrl[] =
    "import importlib.util as u, sys; sys.exit('no package trl' if u.find_spec('trl') is None else "
    "0)";

TEST(ChatSpansTest, AreThoseOfTrainingTemplates) {
  std::string python;
  if (const char* named = std::getenv("DS_PEER_PYTHON"); named != nullptr) {
    python = named;
  } else {
    const ProgramResult check =
        RunProgram({DS_SOURCE_DIR "/scripts/bench/setup_peers.sh", "--check"});
    if (check.status != 0) return SkipWithout("peers", check.err);
    python = check.out.substr(0, check.out.find('\n'));
  }
  const ProgramResult trl = RunProgram({python, "-c", kHasTrl});
  if (trl.status != 0) return SkipWithout("peers", python + ": " + trl.err);
  const TemporaryFolder folder;
  const ProgramResult made =
      RunProgram({python, DS_SOURCE_DIR "/scripts/goldens/make_span_goldens.py",
                  folder.path().string(), "--trl"},
                 {.environment = {"PYTHONDONTWRITEBYTECODE=1"}});
  ASSERT_EQ(made.status, 0) << made.err;
  const SpanGoldens goldens(folder.path());
  EXPECT_GE(goldens.golden()["templates"].size(), 53u);
  EXPECT_GE(goldens.CompareAll(), 500);
}

}  // namespace
}  // namespace ds::testing
