#include "cli/remote/known_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/remote/ssh_patterns.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Real keys, of no host.
constexpr char kOneKey[] =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
constexpr char kOtherKey[] =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

std::string Base64Of(const std::string& key) { return key.substr(key.find(' ') + 1); }

// Returns for each found key which one it is, after its marker.
std::vector<std::string> Find(const std::string& text, const std::string& host, int port = 22) {
  std::vector<std::string> found;
  for (const KnownHosts::Key& key : KnownHosts(text).Find(host, port)) {
    EXPECT_EQ(key.type, "ssh-ed25519");
    const char* marker = key.marker == KnownHosts::Marker::kRevoked     ? "revoked "
                         : key.marker == KnownHosts::Marker::kAuthority ? "authority "
                                                                        : "";
    found.push_back(marker + std::string(key.base64 == Base64Of(kOneKey)     ? "first"
                                         : key.base64 == Base64Of(kOtherKey) ? "second"
                                                                             : "unknown"));
  }
  return found;
}

TEST(KnownHostsTest, FindsPlainNamesInTheOrderOfTheFile) {
  const std::string text = "other " + std::string(kOneKey) + "\nnode,10.0.0.2 " + kOtherKey +
                           " a comment\r\n\t node\t" + kOneKey + "\n";
  EXPECT_THAT(Find(text, "node"), ElementsAre("second", "first"));
  EXPECT_THAT(Find(text, "NODE"), ElementsAre("second", "first"));
  EXPECT_THAT(Find(text, "10.0.0.2"), ElementsAre("second"));
  EXPECT_THAT(Find(text, "node", 2222), IsEmpty());
  EXPECT_THAT(Find(text, "nod"), IsEmpty());
  EXPECT_THAT(Find("node " + std::string(kOneKey), "node"), ElementsAre("first")) << "no newline";
}

TEST(KnownHostsTest, APortIsPartOfTheName) {
  const std::string text =
      "[node]:2222 " + std::string(kOneKey) + "\n[node]:22 " + std::string(kOtherKey) + "\n";
  EXPECT_THAT(Find(text, "node", 2222), ElementsAre("first"));
  EXPECT_THAT(Find(text, "node", 22), ElementsAre("second"));
  EXPECT_THAT(Find("[fd00::2]:2222 " + std::string(kOneKey), "fd00::2", 2222),
              ElementsAre("first"));
  EXPECT_THAT(Find("fd00::2 " + std::string(kOneKey), "fd00::2"), ElementsAre("first"));
}

TEST(KnownHostsTest, PatternsMayBeNegated) {
  const std::string text = "*.Example,!bad.example " + std::string(kOneKey) + "\nn?de " + kOtherKey;
  EXPECT_THAT(Find(text, "good.example"), ElementsAre("first"));
  EXPECT_THAT(Find(text, "bad.example"), IsEmpty());
  EXPECT_THAT(Find("*,!bad.example " + std::string(kOneKey), "bad.example"), IsEmpty());
  EXPECT_THAT(Find(text, "node"), ElementsAre("second"));
  EXPECT_THAT(Find("* " + std::string(kOneKey), "node", 2222), ElementsAre("first"));
  EXPECT_THAT(Find("[127.*,[10.*]:22?? " + std::string(kOneKey), "10.0.0.2", 2222),
              ElementsAre("first"));
  EXPECT_THAT(Find("[127.* " + std::string(kOneKey), "127.0.0.1"), ElementsAre("first"));
}

TEST(KnownHostsTest, FindsHashedNames) {
  for (const char* name : {"node", "[node]:2222"}) {
    const int port = std::string(name) == "node" ? 22 : 2222;
    const std::string hashed = HashKnownHostName(name);
    EXPECT_THAT(hashed, StartsWith("|1|"));
    EXPECT_NE(hashed, HashKnownHostName(name)) << "salted";
    EXPECT_THAT(Find(hashed + " " + kOneKey, "Node", port), ElementsAre("first"));
    EXPECT_THAT(Find(hashed + " " + kOneKey, "node", 77), IsEmpty());
    EXPECT_THAT(Find("@revoked " + hashed + " " + kOneKey, "node", port),
                ElementsAre("revoked first"));
  }
}

TEST(KnownHostsTest, ReportsMarkers) {
  const std::string text = "  @revoked  node " + std::string(kOneKey) +
                           "\n@cert-authority *.x,node " + kOtherKey + "\n@unheard-of node " +
                           kOneKey + "\n";
  EXPECT_THAT(Find(text, "node"), ElementsAre("revoked first", "authority second"));
}

TEST(KnownHostsTest, SkipsWhatIsNoLineOfAHost) {
  for (const std::string& line :
       {std::string(), std::string("# node ") + kOneKey, std::string("node"),
        std::string("node ssh-ed25519"), std::string("node ssh-ed25519 not-base64"),
        std::string("node ssh-rsa ") + Base64Of(kOneKey), std::string("node 2048 35 1234567"),
        std::string("|1|node ") + kOneKey, std::string("|1|bm9kZQ==|bm9kZQ== ") + kOneKey,
        std::string("|2|bm9kZQ==|bm9kZQ== ") + kOneKey, std::string("| ") + kOneKey,
        std::string("|1| ") + kOneKey, std::string("@revoked"), std::string("@revoked node")}) {
    EXPECT_THAT(Find(line + "\n", "node"), IsEmpty()) << line;
    EXPECT_THAT(Find(line + "\nnode " + kOtherKey, "node"), ElementsAre("second")) << line;
  }
}

// ssh-keygen -F prints "# Host NAME found: line N" for each line that names the host.
TEST(KnownHostsTest, FindsTheLinesThatOpenSshFinds) {
  if (ds::testing::RunProgram({"sh", "-c", "command -v ssh-keygen"}).status != 0) {
    return ds::testing::SkipWithout("namespaces", "ssh-keygen is not installed");
  }
  const ds::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "known_hosts").string();
  const std::vector<std::string> names = {"node",        "*.example,!bad.example", "n?de",
                                          "[node]:2222", "[*]:2222,!node",         "NODE,other",
                                          "!node,*"};
  for (std::string list : names) {
    for (const bool hash : {false, true}) {
      std::ofstream(path) << list << " " << kOneKey << "\n";
      if (hash) ds::testing::RunProgram({"ssh-keygen", "-q", "-H", "-f", path});
      std::string text;
      std::getline(std::ifstream(path), text, '\0');
      for (const auto& [host, port] : {std::pair<std::string, int>{"node", 22},
                                       {"node", 2222},
                                       {"Node", 22},
                                       {"good.example", 22},
                                       {"bad.example", 22},
                                       {"other", 22}}) {
        // ssh itself lowers names before it searches.
        const std::string name = Lowered(KnownHostName(host, port));
        const bool found =
            ds::testing::RunProgram({"ssh-keygen", "-F", name, "-f", path}).status == 0;
        EXPECT_EQ(!Find(text, host, port).empty(), found) << name << " in " << text;
      }
    }
  }
}

}  // namespace
}  // namespace ds::cli
