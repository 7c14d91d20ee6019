#include "daemon/inspect/bound_facts.h"

#include <gtest/gtest.h>

#include <string>

namespace ds::daemon {
namespace {

TEST(BoundFactsTest, AShortTextIsUnchanged) {
  EXPECT_EQ(BoundFact(""), "");
  EXPECT_EQ(BoundFact("2.11.0+cpu"), "2.11.0+cpu");
  EXPECT_EQ(BoundFact("Intel® Xeon®"), "Intel® Xeon®");
  EXPECT_EQ(BoundFact(std::string(200, 'x')), std::string(200, 'x'));
}

TEST(BoundFactsTest, ALongTextEndsWithAnEllipsis) {
  EXPECT_EQ(BoundFact(std::string(201, 'x')), std::string(197, 'x') + "...");
  EXPECT_EQ(BoundFact(std::string(1 << 20, 'x'), 1000).size(), 1000U);
}

TEST(BoundFactsTest, NoCharacterIsCutInTwo) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "é";
  EXPECT_EQ(BoundFact(text), text.substr(0, 196) + "...");
  EXPECT_EQ(BoundFact("x" + text), "x" + text.substr(0, 196) + "...");
}

TEST(BoundFactsTest, ControlCharactersAreVisible) {
  EXPECT_EQ(BoundFact("a\nb\tc\x1b[2J\xff"), R"(a\nb\tc\x1b[2J\xff)");
  EXPECT_EQ(BoundFact(std::string(300, '\n')).size(), 200U);
}

TEST(BoundFactsTest, TwiceIsAsOnce) {
  for (const std::string& text :
       {std::string(300, '\n'), std::string(300, 'x'), std::string("a\\b\n")}) {
    EXPECT_EQ(BoundFact(BoundFact(text)), BoundFact(text));
  }
}

v1::HostFacts MakeLargeFacts() {
  const std::string large(1 << 20, 'x');
  v1::HostFacts facts;
  for (std::string* text :
       {facts.mutable_name(), facts.mutable_machine(), facts.mutable_kernel(),
        facts.mutable_system(), facts.mutable_dsrun_version(), facts.mutable_dsrun_compiler(),
        facts.mutable_gpu_driver(), facts.mutable_gpu_problem(),
        facts.mutable_python()->mutable_version(), facts.mutable_python()->mutable_torch(),
        facts.mutable_python()->mutable_problem(), facts.mutable_python()->mutable_hint(),
        facts.mutable_processor()->mutable_model(), facts.mutable_processor()->add_features(),
        facts.add_interfaces()->mutable_name(), facts.mutable_interfaces(0)->add_addresses(),
        facts.add_unanswered()->mutable_message(), facts.mutable_unanswered(0)->mutable_hint()}) {
    *text = large;
  }
  for (v1::FolderFacts* folder : {facts.mutable_shared_memory(), facts.mutable_working_directory(),
                                  facts.mutable_cache(), facts.mutable_run_directory()}) {
    folder->set_path(large);
    folder->set_problem(large);
    folder->set_file_system(large);
  }
  v1::DsrankFacts* dsrank = facts.mutable_dsrank();
  for (std::string* text :
       {dsrank->mutable_path(), dsrank->mutable_problem(), dsrank->mutable_hint(),
        dsrank->mutable_version(), dsrank->mutable_libtorch(), dsrank->mutable_compiler(),
        dsrank->mutable_cpu_capability(), dsrank->mutable_cuda_problem(), dsrank->mutable_cuda(),
        dsrank->mutable_nccl()}) {
    *text = large;
  }
  for (v1::GpuFacts* gpu : {facts.add_gpus(), facts.add_driver_gpus()}) {
    gpu->set_model(large);
    gpu->set_uuid(large);
    gpu->add_users()->set_program(large);
    gpu->mutable_users(0)->set_user(large);
  }
  facts.mutable_offload()->set_problem(large);
  facts.mutable_offload()->set_file_system(large);
  facts.mutable_offload()->set_why_not_ring(large);
  return facts;
}

TEST(BoundFactsTest, NoFactIsLarge) {
  v1::HostFacts facts = MakeLargeFacts();
  BoundFacts(&facts);
  EXPECT_LT(facts.ByteSizeLong(), 64U * 1024);
  EXPECT_EQ(facts.python().version().size(), kLongestFact);
  EXPECT_EQ(facts.python().problem().size(), kLongestFactText);
}

TEST(BoundFactsTest, NoListIsLong) {
  v1::HostFacts facts;
  for (int i = 0; i < 5000; ++i) facts.add_gpus()->set_model(std::to_string(i));
  BoundFacts(&facts);
  EXPECT_EQ(facts.gpus_size(), 1024);
  EXPECT_EQ(facts.gpus(1023).model(), "1023");
}

}  // namespace
}  // namespace ds::daemon
