#include "daemon/inspect/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::daemon {
namespace {

class PreflightTest : public ::testing::Test {
 protected:
  PreflightTest() {
    request_.set_program("/bin/true");
    request_.set_working_directory("/");
    request_.set_rank_count(8);
    context_.facts.mutable_shared_memory()->set_free(std::uint64_t{1} << 30);
    context_.facts.mutable_limits()->set_open_files(4096);
    context_.search_path = "/bin";
  }

  v1::Finding Find(const std::string& name) const {
    for (v1::Finding& finding : RunPreflight(request_, context_)) {
      if (finding.name() == name) return finding;
    }
    ADD_FAILURE() << "no finding " << name;
    return {};
  }
  v1::Finding::Level Level(const std::string& name) const { return Find(name).level(); }

  v1::PrepareRequest request_;
  PreflightContext context_;
};

TEST_F(PreflightTest, AGoodHostHasNothingToHint) {
  for (const v1::Finding& finding : RunPreflight(request_, context_)) {
    EXPECT_EQ(finding.level(), v1::Finding::OK) << finding.name() << ": " << finding.message();
    EXPECT_FALSE(finding.message().empty()) << finding.name();
    EXPECT_TRUE(finding.hint().empty()) << finding.name();
  }
}

TEST_F(PreflightTest, AMissingProgramFails) {
  request_.set_program("no-such-program");
  EXPECT_EQ(Level("program"), v1::Finding::FAIL);
  EXPECT_FALSE(Find("program").hint().empty());
  request_.set_program("true");
  EXPECT_EQ(Level("program"), v1::Finding::OK);
  request_.set_search_path("/no/such/folder");
  EXPECT_EQ(Level("program"), v1::Finding::FAIL);
}

TEST_F(PreflightTest, AMissingInterpreterIsMissingAtThePathOfEveryHost) {
  request_.set_program("/no/such/env/bin/python3");
  request_.set_is_interpreter(true);
  EXPECT_EQ(Level("program"), v1::Finding::FAIL);
  EXPECT_NE(Find("program").message().find("/no/such/env/bin/python3"), std::string::npos);
  EXPECT_NE(Find("program").hint().find("--python"), std::string::npos);
}

TEST_F(PreflightTest, WithoutAPathProgramsAreWhereTheyUsuallyAre) {
  request_.set_program("true");
  context_.search_path.clear();
  EXPECT_EQ(Level("program"), v1::Finding::OK) << Find("program").message();
}

TEST_F(PreflightTest, TheScriptMustBeThere) {
  request_.set_working_directory("/etc");
  request_.set_script("passwd");
  EXPECT_EQ(Level("script"), v1::Finding::OK);
  request_.set_script("/no/such/train.py");
  EXPECT_EQ(Level("script"), v1::Finding::FAIL);
  EXPECT_EQ(Find("script").message(), "/no/such/train.py: No such file or directory");
  request_.set_script(".");
  EXPECT_EQ(Find("script").message(), "/etc/.: Is a directory");
}

TEST_F(PreflightTest, DsrankMustExistWhenRequested) {
  request_.clear_program();
  EXPECT_EQ(Level("dsrank"), v1::Finding::FAIL);
  context_.dsrank = "/no/such/dsrank";
  EXPECT_EQ(Level("dsrank"), v1::Finding::FAIL);
  context_.dsrank = FindOwnExecutable().value();
  EXPECT_EQ(Level("dsrank"), v1::Finding::OK);
  context_.dsrank = "/etc/passwd";
  EXPECT_EQ(Level("dsrank"), v1::Finding::FAIL);
}

TEST_F(PreflightTest, TheWorkingDirectoryMustBeAFolder) {
  request_.set_working_directory("/no/such/folder");
  EXPECT_EQ(Level("working_directory"), v1::Finding::FAIL);
  request_.set_working_directory("/bin/true");
  EXPECT_EQ(Find("working_directory").message(), "/bin/true: Not a directory");
}

TEST_F(PreflightTest, LittleSharedMemoryIsAWarning) {
  EXPECT_EQ(Level("/dev/shm"), v1::Finding::OK);
  context_.facts.mutable_shared_memory()->set_free(1 << 20);
  EXPECT_EQ(Level("/dev/shm"), v1::Finding::WARN);
  EXPECT_EQ(Find("/dev/shm").message(), "1.00 MiB free of 0 B in /dev/shm");
  context_.facts.mutable_shared_memory()->set_problem("No such file or directory");
  context_.facts.mutable_shared_memory()->set_missing(true);
  EXPECT_EQ(Level("/dev/shm"), v1::Finding::WARN);
  EXPECT_EQ(Find("/dev/shm").message(), "there is no /dev/shm");
}

TEST_F(PreflightTest, DescriptorsMustSuffice) {
  context_.facts.mutable_limits()->set_open_files(103);
  EXPECT_EQ(Level("nofile"), v1::Finding::FAIL);
  EXPECT_EQ(Find("nofile").message(), "103 open files, 104 needed");
  context_.facts.mutable_limits()->set_open_files(104);
  EXPECT_EQ(Level("nofile"), v1::Finding::WARN) << "the ranks need some, too";
}

TEST_F(PreflightTest, CudaNeedsAGpu) {
  request_.set_device(v1::PrepareRequest::DEVICE_CUDA);
  EXPECT_EQ(Level("device"), v1::Finding::FAIL);
  context_.facts.set_gpu_devices(1);
  EXPECT_EQ(Level("device"), v1::Finding::OK);
}

TEST_F(PreflightTest, CudaNeedsNoDeviceFileWhereTheDriverHasNone) {  // WSL
  request_.set_device(v1::PrepareRequest::DEVICE_CUDA);
  context_.facts.set_has_gpu_driver(true);
  EXPECT_EQ(Level("device"), v1::Finding::OK);
}

TEST_F(PreflightTest, RanksComputeOnGpusThatTheySeeAndCanUse) {
  const ds::testing::TemporaryFolder folder;
  context_.dsrank = folder.path() / "dsrank";
  context_.facts.set_gpu_devices(2);
  context_.facts.set_has_gpu_driver(true);
  EXPECT_FALSE(ComputesOnGpus(request_, context_)) << "this build has no CUDA";
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "libdsrun_cuda.so", "").ok());
  EXPECT_TRUE(ComputesOnGpus(request_, context_));
  context_.visible_devices = "";
  EXPECT_FALSE(ComputesOnGpus(request_, context_)) << "they are hidden";
  context_.visible_devices = "-1";
  EXPECT_FALSE(ComputesOnGpus(request_, context_)) << "they are hidden";
  request_.add_devices("1");
  EXPECT_TRUE(ComputesOnGpus(request_, context_)) << "the ranks get a variable of their own";
  context_.facts.set_has_gpu_driver(false);
  EXPECT_FALSE(ComputesOnGpus(request_, context_));
  context_.facts.set_has_gpu_driver(true);
  request_.set_device(v1::PrepareRequest::DEVICE_CPU);
  EXPECT_FALSE(ComputesOnGpus(request_, context_));
}

TEST_F(PreflightTest, ADeviceThatIsNotThereIsNamed) {
  for (const char* device : {"0", "3", "GPU-8f2a", "MIG-1c"}) request_.add_devices(device);
  EXPECT_EQ(Level("device"), v1::Finding::OK) << "without GPUs the ranks run on CPU";
  context_.facts.set_gpu_devices(4);
  EXPECT_EQ(Level("device"), v1::Finding::OK);
  context_.facts.set_gpu_devices(3);
  EXPECT_EQ(Level("device"), v1::Finding::FAIL);
  EXPECT_EQ(Find("device").message(), "3 GPUs, and the job requires device 3");
}

}  // namespace
}  // namespace ds::daemon
