#include "runtime/comm/net/ip_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace ds::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<LocalAddress> kHost = {
    {.interface = "lo", .text = "127.0.0.1", .prefix = 8, .loopback = true},
    {.interface = "eth0", .text = "10.1.0.2", .prefix = 16},
    {.interface = "ib0", .text = "fd00::2", .prefix = 64},
    {.interface = "docker0", .text = "172.17.0.1", .prefix = 16}};

std::vector<std::string> Chosen(const std::vector<LocalAddress>& all, const std::string& wanted) {
  std::vector<std::string> texts;
  const auto chosen = ChooseAddresses(all, wanted);
  EXPECT_TRUE(chosen.ok()) << chosen.status().message();
  if (!chosen.ok()) return texts;
  for (const LocalAddress& each : *chosen) texts.push_back(each.text);
  return texts;
}

TEST(IpAddressesTest, AnInterfaceOrAnAddressCanBeNamed) {
  EXPECT_THAT(Chosen(kHost, ""), ElementsAre("10.1.0.2", "fd00::2", "172.17.0.1"));
  EXPECT_THAT(Chosen(kHost, "ib0"), ElementsAre("fd00::2"));
  EXPECT_THAT(Chosen(kHost, "10.1.0.2"), ElementsAre("10.1.0.2"));
  EXPECT_THAT(Chosen(kHost, "lo"), ElementsAre("127.0.0.1"));
}

TEST(IpAddressesTest, AListNamesRails) {
  const auto chosen = ChooseAddresses(kHost, "ib0,10.1.0.2");
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  ASSERT_EQ(chosen->size(), 2u);
  EXPECT_EQ((*chosen)[0].text, "fd00::2");
  EXPECT_EQ((*chosen)[0].rail, 0);
  EXPECT_EQ((*chosen)[1].text, "10.1.0.2");
  EXPECT_EQ((*chosen)[1].rail, 1);
  EXPECT_EQ(CountRails(*chosen), 2);
  EXPECT_EQ(CountRails(*ChooseAddresses(kHost, "")), 1);
  const Status missing = ChooseAddresses(kHost, "eth0,eth7").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("no network interface or address eth7; it has lo"));
  for (const std::string twice : {"eth0,eth0", "eth0,ib0,10.1.0.2"}) {
    EXPECT_THAT(ChooseAddresses(kHost, twice).status().message(),
                HasSubstr("names the interface eth0 twice"));
  }
  for (const std::string hole : {"eth0,", ",eth0", ","}) {
    EXPECT_EQ(ChooseAddresses(kHost, hole).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(IpAddressesTest, WhereThereIsOnlyTheLoopbackInterfaceItServes) {
  EXPECT_THAT(Chosen({kHost[0]}, ""), ElementsAre("127.0.0.1"));
}

TEST(IpAddressesTest, AMissingInterfaceIsAnErrorThatListsTheOthers) {
  const auto chosen = ChooseAddresses(kHost, "eth7");
  EXPECT_EQ(chosen.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(chosen.status().message(), HasSubstr("eth7"));
  EXPECT_THAT(chosen.status().message(), HasSubstr("eth0 10.1.0.2"));
}

TEST(IpAddressesTest, ALinkLocalAddressIsNeverOfferedWithTheReason) {
  const LocalAddress local = {
      .interface = "eth1", .text = "fe80::1", .prefix = 64, .link_local = true};
  EXPECT_THAT(Chosen({kHost[0], kHost[1], local}, ""), ElementsAre("10.1.0.2"));
  EXPECT_THAT(Chosen({kHost[0], local}, ""), ElementsAre("127.0.0.1"));
  for (const std::string wanted : {"eth1", "fe80::1"}) {
    const Status status = ChooseAddresses({kHost[0], kHost[1], local}, wanted).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("eth1 fe80::1 (link-local, which leads no rank here)"));
  }
}

TEST(IpAddressesTest, TooManyAddressesAreAnErrorWithARemedy) {
  std::vector<LocalAddress> many(257, kHost[2]);
  const Status status = ChooseAddresses(many, "").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("257 network addresses"));
  EXPECT_THAT(status.message(), HasSubstr("--interface"));
  many.back().interface = "ib1";
  EXPECT_EQ(Chosen(many, "ib1").size(), 1u);
  many.pop_back();
  EXPECT_EQ(Chosen(many, "").size(), 256u);
}

TEST(IpAddressesTest, ACommonNetworkIsTriedFirstAndAnAddressThatBothHaveLast) {
  EXPECT_THAT(OrderAddresses(kHost, {"172.17.0.1", "192.168.0.9", "fd00::7", "10.1.200.3"}),
              ElementsAre("fd00::7", "10.1.200.3", "192.168.0.9", "172.17.0.1"));
}

TEST(IpAddressesTest, AnRdmaDeviceIsRefusedWithTheInterfacesOfItsNetwork) {
  const testing::TemporaryFolder root;
  const auto devices = root.path() / "sys/class/infiniband";
  std::filesystem::create_directories(devices / "mlx5_0/device/net/ib0");
  std::filesystem::create_directories(devices / "hfi1_0/device");
  for (const std::string wanted : {"mlx5_0", "mlx5_0:1", "eth0,mlx5_0:1"}) {
    const Status refused = RefuseRdmaDevices(wanted, root.path());
    EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(refused.message(), HasSubstr("mlx5_0 is an RDMA device."));
    EXPECT_THAT(refused.message(), HasSubstr("--interface ib0 uses TCP over its network"));
  }
  EXPECT_THAT(RefuseRdmaDevices("hfi1_0", root.path()).message(),
              HasSubstr("it has no network interface for TCP"));
  for (const std::string other : {"", "ib0", "eth0,ib0", "fd00::2", "..", "mlx5_1:1"}) {
    EXPECT_TRUE(RefuseRdmaDevices(other, root.path()).ok()) << other;
    EXPECT_TRUE(RefuseRdmaDevices(other, root.path() / "none").ok());
  }
}

TEST(IpAddressesTest, AnInterfaceThatIsCalledAsItsRdmaDeviceIsAnInterface) {
  const testing::TemporaryFolder root;
  const auto classes = root.path() / "sys/class";
  std::filesystem::create_directories(classes / "infiniband/ibp1s0/device/net/ibp1s0");
  std::filesystem::create_directories(classes / "net/ibp1s0");
  EXPECT_TRUE(RefuseRdmaDevices("eth0,ibp1s0", root.path()).ok());
  EXPECT_THAT(RefuseRdmaDevices("ibp1s0:1", root.path()).message(),
              HasSubstr("--interface ibp1s0 uses TCP over its network"));
}

TEST(IpAddressesTest, ThisHostHasAnAddress) {
  const auto addresses = ListLocalAddresses();
  ASSERT_TRUE(addresses.ok());
  for (const LocalAddress& each : *addresses) {
    EXPECT_FALSE(each.interface.empty());
    EXPECT_GT(each.prefix, 0) << each.text;
  }
}

}  // namespace
}  // namespace ds::comm
