#include "daemon/network/daemon_service.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "proto/peer_name.h"

namespace ds::daemon {
namespace {

// Only a derived class may make one.
struct Nowhere : grpc::AuthPropertyIterator {};

// A caller whose certificate has these DNS names.
class FakeCaller : public grpc::AuthContext {
 public:
  explicit FakeCaller(std::vector<std::string> names, bool authenticated = true)
      : names_(std::move(names)), authenticated_(authenticated) {}

  bool IsPeerAuthenticated() const override { return authenticated_; }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {}; }
  std::string GetPeerIdentityPropertyName() const override { return ""; }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string& name) const override {
    if (name != "peer_dns") return {};
    return {names_.begin(), names_.end()};
  }
  grpc::AuthPropertyIterator begin() const override { return Nowhere(); }
  grpc::AuthPropertyIterator end() const override { return Nowhere(); }
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override { return false; }

 private:
  const std::vector<std::string> names_;
  const bool authenticated_;
};

StatusCode CodeFor(const FakeCaller& caller) {
  return CheckCaller(caller, ::dsrun::v1::ControllerPeerName("job")).code();
}

TEST(CheckCallerTest, OnlyTheControllerOfThisJobMayCall) {
  EXPECT_EQ(CodeFor(FakeCaller({"controller.job.dsrun"})), StatusCode::kOk);
  EXPECT_EQ(CodeFor(FakeCaller({"controller.job2.dsrun"})), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeFor(FakeCaller({"daemon-0.job.dsrun"})), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeFor(FakeCaller({})), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeFor(FakeCaller({"controller.job.dsrun", "daemon-0.job.dsrun"})),
            StatusCode::kPermissionDenied);
}

TEST(CheckCallerTest, RefusesCallersWithoutCredentials) {
  EXPECT_EQ(CodeFor(FakeCaller({"controller.job.dsrun"}, false)), StatusCode::kUnauthenticated);
}

TEST(CheckCallerTest, NoJobsNameCanBeMadeToLookLikeAnothersRole) {
  // A job called "x" and a daemon of a job called "controller.x" or the like.
  EXPECT_NE(::dsrun::v1::DaemonPeerName("controller.x", 0), ::dsrun::v1::ControllerPeerName("x"));
  EXPECT_NE(::dsrun::v1::DaemonPeerName("x", 1), ::dsrun::v1::DaemonPeerName("x", 11));
}

}  // namespace
}  // namespace ds::daemon
