#include "runtime/checkpoint/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/base/files.h"
#include "tests/support/scripted_file_system.h"

namespace ds::checkpoint {
namespace {

using ::testing::HasSubstr;

class SafetensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "dsrun-st.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path() const { return folder_ / "model.safetensors"; }

  // A file with this header and `data_bytes` bytes behind it.
  void WriteRaw(const std::string& header, std::size_t data_bytes) const {
    const std::uint64_t length = header.size();
    std::ofstream file(path(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header << std::string(data_bytes, '\1');
  }

  std::string OpenError() const {
    const auto file = SafetensorsFile::Open(path());
    EXPECT_FALSE(file.ok());
    EXPECT_THAT(file.status().message(), HasSubstr(path().string())) << "errors name the file";
    return file.ok() ? "" : file.status().message();
  }

  std::string OpenError(const std::string& header, std::size_t data_bytes) const {
    WriteRaw(header, data_bytes);
    return OpenError();
  }

  std::filesystem::path folder_;
};

TEST_F(SafetensorsTest, RoundTrips) {
  const at::Tensor a = at::randn({3, 5}), b = at::randn({7}).to(at::kBFloat16),
                   scalar = at::randn({});
  auto writer = SafetensorsWriter::Create(
      path(), {{"a", at::kFloat, {3, 5}}, {"b", at::kBFloat16, {7}}, {"s", at::kFloat, {}}});
  ASSERT_TRUE(writer.ok());
  // Any order.
  EXPECT_TRUE((*writer)->Write("s", scalar).ok());
  EXPECT_TRUE((*writer)->Write("b", b).ok());
  EXPECT_TRUE((*writer)->Write("a", a).ok());
  EXPECT_FALSE(std::filesystem::exists(path())) << "nothing under the final name before Commit";
  EXPECT_TRUE((*writer)->Commit().ok());

  const auto file = SafetensorsFile::Open(path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  at::Tensor read_a = at::empty({3, 5}), read_b = at::empty({7}, at::kBFloat16),
             read_scalar = at::empty({});
  EXPECT_TRUE(file->Read("a", 0, read_a).ok());
  EXPECT_TRUE(file->Read("b", 0, read_b).ok());
  EXPECT_TRUE(file->Read("s", 0, read_scalar).ok());
  EXPECT_TRUE(at::equal(read_a, a));
  EXPECT_TRUE(at::equal(read_b, b));
  EXPECT_TRUE(at::equal(read_scalar, scalar));
}

TEST_F(SafetensorsTest, RoundsBetweenFloatingPointDtypes) {
  auto writer = SafetensorsWriter::Create(path(), {{"a", at::kHalf, {4}}}).value();
  const at::Tensor a = at::randn({4});
  ASSERT_TRUE(writer->Write("a", a).ok());
  ASSERT_TRUE(writer->Commit().ok());
  at::Tensor read = at::empty({4}, at::kBFloat16);
  ASSERT_TRUE(SafetensorsFile::Open(path())->Read("a", 0, read).ok());
  EXPECT_TRUE(at::equal(read, a.to(at::kHalf).to(at::kBFloat16)));
}

TEST_F(SafetensorsTest, ReadsAnyRangeOfATensor) {
  constexpr std::int64_t kCount = 9'000'000;  // more than is staged at once
  auto writer = SafetensorsWriter::Create(path(), {{"a", at::kFloat, {3000, 3000}}}).value();
  const at::Tensor a = at::arange(kCount, at::kFloat).view({3000, 3000});
  ASSERT_TRUE(writer->Write("a", a).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const auto file = SafetensorsFile::Open(path()).value();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& [first, count] : {std::pair{0L, 1L},
                                       {2999L, 4L},
                                       {7L, kCount - 8},
                                       {5L, 0L},
                                       {kCount - 1, 1L},
                                       {kCount, 0L}}) {
      const at::Tensor out = at::empty({count}, dtype);
      ASSERT_TRUE(file.Read("a", first, out).ok()) << first << ' ' << count;
      EXPECT_TRUE(at::equal(out, a.view({-1}).narrow(0, first, count).to(dtype)))
          << first << ' ' << count << ' ' << dtype;
    }
  }
}

TEST_F(SafetensorsTest, FillsAViewOfALargerBuffer) {
  auto writer = SafetensorsWriter::Create(path(), {{"a", at::kFloat, {2, 3}}}).value();
  const at::Tensor a = at::randn({2, 3});
  ASSERT_TRUE(writer->Write("a", a).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const at::Tensor flat = at::zeros({10});
  at::Tensor view = flat.narrow(0, 2, 6).view({2, 3});
  ASSERT_TRUE(SafetensorsFile::Open(path())->Read("a", 0, view).ok());
  EXPECT_TRUE(at::equal(flat.narrow(0, 2, 6).view({2, 3}), a));
  EXPECT_EQ(flat[1].item<float>(), 0.0F);
  EXPECT_EQ(flat[8].item<float>(), 0.0F);
}

// A write that is lost is told by the sync, by the close (NFS) or not at all.
TEST_F(SafetensorsTest, AFaultAtAnyCallKeepsTheFileThatWasThere) {
  using ds::testing::FileCall;
  ASSERT_TRUE(WriteFileAtomically(path(), "as it was").ok());
  const auto write = [&](FileSystem& system) -> Status {
    DS_ASSIGN_OR_RETURN(const auto writer,
                        SafetensorsWriter::Create(path(), {{"a", at::kFloat, {4}}}, system));
    DS_RETURN_IF_ERROR(writer->Write("a", at::ones({4})));
    return writer->Commit();
  };
  for (const FileCall::Kind kind :
       {FileCall::Kind::kOpen, FileCall::Kind::kWrite, FileCall::Kind::kSync,
        FileCall::Kind::kClose, FileCall::Kind::kRename}) {
    ds::testing::ScriptedFileSystem system([&](const FileCall& call) {
      return call.kind == kind ? ENOSPC : ds::testing::kAskTheSystem;
    });
    const Status status = write(system);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << static_cast<int>(kind);
    EXPECT_THAT(status.message(), HasSubstr(path().string()));
    EXPECT_EQ(ReadFile(path()).value(), "as it was");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_),
                            std::filesystem::directory_iterator()),
              1);
  }
}

TEST_F(SafetensorsTest, LeavesNoFilesWithoutCommit) {
  {
    auto writer = SafetensorsWriter::Create(path(), {{"a", at::kFloat, {4}}}).value();
    EXPECT_EQ(writer->Commit().message(), path().string() + ": tensor 'a' was never written");
    EXPECT_THAT(writer->Write("b", at::randn({4})).message(), HasSubstr("'b' was not declared"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SafetensorsTest, NamesTheTensorThatDoesNotFit) {
  WriteRaw(R"({"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}})", 16);
  const auto file = SafetensorsFile::Open(path());
  ASSERT_TRUE(file.ok());
  const std::string where = path().string() + ": tensor ";
  const at::Tensor two = at::empty({2}), longs = at::empty({1, 2}, at::kLong);
  EXPECT_EQ(file->Read("b", 0, two).message(), where + "'b' is missing");
  EXPECT_EQ(file->Read("a", 0, two).message(), where + "'a' has dtype Long, expected Float");
  EXPECT_EQ(file->CheckReadable("a", {1, 2}, at::kLong).message(),
            where + "'a' has shape [2], expected [1, 2]");
  EXPECT_EQ(file->Read("a", 1, longs).message(),
            where + "'a' has 2 elements, not 2 after element 1");
}

TEST_F(SafetensorsTest, RefusesFilesThatAreNoneOrTruncated) {
  EXPECT_THAT(OpenError(), HasSubstr("No such file"));
  std::ofstream(path()) << "abc";
  EXPECT_THAT(OpenError(), HasSubstr("not a safetensors file: 3 bytes long"));
  std::ofstream(path()) << "this is a text file, not a model";
  EXPECT_THAT(OpenError(), HasSubstr("truncated, or not a safetensors file"));
  EXPECT_THAT(
      OpenError(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 15),
      HasSubstr("the file is truncated: tensor 'a' needs data bytes up to 16, there are 15"));
}

TEST_F(SafetensorsTest, ATensorOfAnUnknownDtypeIsRefusedWhenItIsAskedFor) {
  WriteRaw(R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},
               "b":{"dtype":"F4","shape":[16],"data_offsets":[4,12]},
               "c":{"dtype":"U8","shape":[2],"data_offsets":[12,14]}})",
           14);
  const auto file = SafetensorsFile::Open(path());
  ASSERT_TRUE(file.ok()) << file.status().message();
  at::Tensor bytes = at::empty({2}, at::kByte), four = at::empty({4}), sixteen = at::empty({16});
  EXPECT_TRUE(file->Read("c", 0, bytes).ok());
  EXPECT_EQ(bytes[0].item<int>(), 1);
  EXPECT_THAT(file->Read("a", 0, four).message(), HasSubstr("'a' has dtype F8_E4M3, which is not"));
  EXPECT_EQ(file->Read("b", 0, sixteen).code(), StatusCode::kUnimplemented);
}

TEST_F(SafetensorsTest, AFileThatShrinksLaterIsAnError) {
  WriteRaw(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 16);
  const auto file = SafetensorsFile::Open(path());
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path(), std::filesystem::file_size(path()) - 8);
  at::Tensor out = at::empty({4});
  EXPECT_THAT(file->Read("a", 0, out).message(), HasSubstr("tensor 'a': the file ends at byte"));
}

}  // namespace
}  // namespace ds::checkpoint
