// `dsrun report`: which facts of several hosts differ, and the tables for people and programs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/report/compare_hosts.h"
#include "cli/report/report_text.h"
#include "cli/report/try_offload.h"
#include "daemon/inspect/judge.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

HostReport Host(const std::string& name) {
  HostReport host{.host = name, .facts = {}};
  host.facts.set_gpu_driver("550.54");
  host.facts.set_kernel("6.1.0");
  host.facts.set_unix_nanos(1);
  host.unix_nanos = 1;
  return host;
}

std::vector<HostReport> Hosts(int count) {
  std::vector<HostReport> hosts;
  for (int i = 0; i < count; ++i) hosts.push_back(Host("h" + std::to_string(i)));
  return hosts;
}

void ExpectFits(const std::string& table) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(CompareHostsTest, EqualHostsDoNotDiffer) {
  EXPECT_THAT(CompareHosts(Hosts(3)), IsEmpty());
  EXPECT_THAT(CompareHosts({}), IsEmpty());
}

TEST(CompareHostsTest, HostsAreGroupedByTheirValue) {
  std::vector<HostReport> hosts = Hosts(4);
  hosts[1].facts.set_gpu_driver("535.1");
  const auto differences = CompareHosts(hosts);
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].name, "GPU driver");
  ASSERT_EQ(differences[0].groups.size(), 2U);
  EXPECT_EQ(differences[0].groups[0].value, "550.54");
  EXPECT_THAT(differences[0].groups[0].hosts, ElementsAre("h0", "h2", "h3"));
  EXPECT_EQ(differences[0].groups[1].value, "535.1");
  EXPECT_THAT(differences[0].groups[1].hosts, ElementsAre("h1"));
}

struct FactCase {
  const char* name;
  void (*change)(HostReport&);
  const char* value;
};

TEST(CompareHostsTest, EachFactIsARow) {
  const FactCase cases[] = {
      {"dsrun", [](HostReport& h) { h.facts.set_dsrun_version("9"); }, "9"},
      {"Python", [](HostReport& h) { h.facts.mutable_python()->set_version("3.9"); }, "3.9"},
      {"torch", [](HostReport& h) { h.facts.mutable_python()->set_torch("2.1"); }, "2.1"},
      {"nproc", [](HostReport& h) { h.facts.mutable_limits()->set_processes(UINT64_MAX); },
       "unlimited"},
      {"nofile", [](HostReport& h) { h.facts.mutable_limits()->set_open_files(7); }, "7"},
      {"nofile",
       [](HostReport& h) {
         h.facts.mutable_limits()->set_open_files(65536);
         h.facts.mutable_limits()->set_open_files_of_ranks(1024);
       },
       "1024"},
      {"/dev/shm", [](HostReport& h) { h.facts.mutable_shared_memory()->set_total(1024); },
       "1.00 KiB"},
      {"cache", [](HostReport& h) { h.facts.mutable_cache()->set_file_system("nfs4"); },
       "nfs4, 0 B"},
      {"working_directory",
       [](HostReport& h) { h.facts.mutable_working_directory()->set_problem("gone"); }, "gone"},
      {"working_directory",
       [](HostReport& h) { h.facts.mutable_working_directory()->set_missing(true); }, "not there"},
      {"clock", [](HostReport& h) { h.unix_nanos = 15'000'000'000; }, "15 s behind"},
      {"no answer", [](HostReport& h) { h.facts.add_unanswered()->set_message("/data"); }, "/data"},
  };
  for (const FactCase& each : cases) {
    std::vector<HostReport> hosts = Hosts(2);
    each.change(hosts[1]);
    const auto differences = CompareHosts(hosts);
    ASSERT_EQ(differences.size(), 1U) << each.name;
    EXPECT_EQ(differences[0].name, each.name);
    EXPECT_EQ(differences[0].groups[1].value, each.value);
  }
}

TEST(CompareHostsTest, AnInterpreterThatDoesNotAnswerHasNoVersions) {
  std::vector<HostReport> hosts = Hosts(2);
  hosts[1].facts.mutable_python()->set_problem("python3 was not found");
  const auto differences = CompareHosts(hosts);
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0].groups[1].value, "not usable");
  EXPECT_EQ(differences[1].groups[1].value, "unknown");
}

TEST(CompareHostsTest, AFactHasTheNameOfItsFinding) {
  // Facts without a finding of their own, and the clock, which is judged by its caller.
  std::vector<std::string> names = {"torch", "nproc", "GPU memory", "system", "clock"};
  HostReport read = Host("h0");
  read.facts.mutable_processor()->set_numa_nodes(2);
  read.facts.mutable_memory()->set_total(1);
  read.facts.mutable_limits()->set_open_files(1);
  read.facts.mutable_limits()->set_locked_memory(1);
  read.facts.mutable_shared_memory();
  read.facts.mutable_working_directory();
  read.facts.mutable_cache();
  read.facts.mutable_python()->set_version("3.11");
  read.facts.mutable_dsrank()->set_version("1.2.3");
  read.facts.set_dsrun_version("1.2.3");
  read.facts.add_gpus()->set_model("H100");
  read.facts.set_infiniband_devices(1);
  read.facts.add_unanswered()->set_message("/data");
  for (const v1::Finding& each : daemon::JudgeHost(read.facts, 1)) names.push_back(each.name());
  for (const FactDifference& each : CompareHosts({read, HostReport{.host = "h1", .facts = {}}})) {
    EXPECT_THAT(names, ::testing::Contains(each.name));
  }
}

TEST(FormatHostListTest, ConsecutiveNumbersAreARange) {
  EXPECT_EQ(FormatHostList({"h0", "h1", "h2", "h7"}), "h0-h2, h7");
  EXPECT_EQ(FormatHostList({"h0", "h1"}), "h0, h1");
  EXPECT_EQ(FormatHostList({"h08", "h09", "h10"}), "h08-h10");
  EXPECT_EQ(FormatHostList({"h8", "h9", "h10"}), "h8-h10");
  EXPECT_EQ(FormatHostList({"h8", "h9", "h010"}), "h8, h9, h010");
  EXPECT_EQ(FormatHostList({"a1", "b2", "c3"}), "a1, b2, c3");
  EXPECT_EQ(FormatHostList({"a", "b", ""}), "a, b, ");
  EXPECT_EQ(
      FormatHostList({"h18446744073709551614", "h18446744073709551615", "h18446744073709551616"}),
      "h18446744073709551614, h18446744073709551615, h18446744073709551616");
}

TEST(ReportTextTest, HostsShowDifferencesFindingsAndFailures) {
  std::vector<HostReport> hosts = Hosts(8);
  hosts[7].facts.set_gpu_driver("535.1");
  for (int i : {0, 1, 2}) hosts[i].findings = {daemon::Fail("nofile", "64 open files", "raise it")};
  for (int i : {3, 4}) {
    hosts[i].findings = {daemon::Warn("memory", std::to_string(i) + " MiB free", "free some")};
  }
  const std::string table = FormatHostsTable(
      hosts, {{"h9", {.kind = FailureKind::kRefused, .message = "port 22", .hint = "start sshd"}}});
  EXPECT_EQ(table,
            "report of 9 hosts\n"
            "\n"
            "what differs\n"
            "  GPU driver  550.54: h0-h6\n"
            "              535.1: h7\n"
            "\n"
            "what would stop a job\n"
            "fail  nofile      h0-h2: 64 open files\n"
            "                  > raise it\n"
            "\n"
            "what to look at\n"
            "warn  memory      h3, h4: h3: 3 MiB free\n"
            "                  > free some\n"
            "\n"
            "hosts that cannot be used\n"
            "fail  refused     h9: port 22\n"
            "                  > start sshd\n"
            "\n"
            "2 would stop a job, 1 to look at\n");
}

TEST(ReportTextTest, FindingsOfOneHostAreAllShownAndNameItOnce) {
  std::vector<HostReport> hosts = Hosts(1);
  hosts[0].findings = {daemon::Fail("no answer", "/data1 has not answered", "see the mounts"),
                       daemon::Fail("no answer", "/data2 has not answered", "see the mounts"),
                       daemon::Fail("no answer", "/data2 has not answered", "see the mounts")};
  EXPECT_THAT(FormatHostsTable(hosts, {}),
              HasSubstr("what would stop a job\n"
                        "fail  no answer   h0: /data1 has not answered\n"
                        "                  > see the mounts\n"
                        "fail  no answer   h0: /data2 has not answered\n"
                        "                  > see the mounts\n"
                        "\n"
                        "2 would stop a job"));
}

TEST(ReportTextTest, DifferentErrorsOfHostsAreNotOne) {
  std::vector<HostReport> hosts = Hosts(3);
  hosts[0].findings = {daemon::Fail("dsrank", "dsrank: No such file", "install it")};
  hosts[1].findings = {daemon::Fail("dsrank", "dsrank: Permission denied", "install it")};
  hosts[2].findings = {daemon::Fail("dsrank", "dsrank: No such file", "install it")};
  const std::string table = FormatHostsTable(hosts, {});
  EXPECT_THAT(table, HasSubstr("fail  dsrank      h0, h2: dsrank: No such file\n"));
  EXPECT_THAT(table, HasSubstr("fail  dsrank      h1: dsrank: Permission denied\n"));
}

TEST(ReportTextTest, TextOfHostsIsHarmless) {
  std::vector<HostReport> hosts = Hosts(2);
  hosts[0].facts.set_kernel("6.1\x1b[2J\nfail  forged\t\xff\xfe");
  hosts[1].facts.set_kernel(std::string(3000, 'k'));
  hosts[1].facts.set_system("\xe2\x82\xac\xe2\x82\xac" + std::string(200, 'x'));
  hosts[0].findings = {daemon::JudgeKernel(hosts[0].facts)};
  const std::string table = FormatHostsTable(hosts, {});
  ExpectFits(table);
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
  EXPECT_THAT(table, Not(HasSubstr("\nfail  forged")));
  EXPECT_THAT(table, Not(HasSubstr("\t")));
  EXPECT_NO_THROW(FormatHostsJson(hosts, {}).dump());
}

TEST(ReportTextTest, EveryKindOfFailureFits) {
  const std::string words = "a message that is as long as messages of ssh are, and even longer";
  for (int kind = 0; kind <= static_cast<int>(FailureKind::kInterrupted); ++kind) {
    ExpectFits(FormatHostsTable({}, {{"h9",
                                      {.kind = static_cast<FailureKind>(kind),
                                       .message = words + ", and " + words,
                                       .hint = words + ", and " + words}}}));
  }
}

TEST(ReportTextTest, HostsAsJson) {
  std::vector<HostReport> hosts = Hosts(2);
  hosts[1].facts.set_gpu_driver("535.1");
  hosts[1].findings = {daemon::Warn("memory", "little", "free some")};
  const auto json = FormatHostsJson(
      hosts, {{"h9", {.kind = FailureKind::kTimeout, .message = "silent", .hint = "look"}}});
  EXPECT_EQ(json["level"], "fail");
  EXPECT_EQ(json["differences"][0]["name"], "GPU driver");
  EXPECT_EQ(json["differences"][0]["values"][1]["hosts"][0], "h1");
  EXPECT_EQ(json["hosts"][1]["level"], "warn");
  EXPECT_EQ(json["failed"][0]["kind"], "timeout");
  EXPECT_EQ(FormatHostsJson(hosts, {})["level"], "warn");
}

TEST(ReportTextTest, OneHostFitsEightyColumnsAndLosesNoWord) {
  const std::string words =
      "a value that is so long that it does not fit into one line of a "
      "terminal and has to be wrapped at least once or twice";
  HostReport host{.host = "worker-1", .facts = {}};
  host.findings = {daemon::Ok("short", "fine"), daemon::Warn("GPU driver", words, words),
                   daemon::Fail("path", std::string(150, 'x'), "move it")};
  const std::string table = FormatReportTable(host);
  ExpectFits(table);
  std::istringstream text(table);
  std::string joined;
  for (std::string word; text >> word;) joined += word + " ";
  EXPECT_THAT(joined, HasSubstr("warn GPU driver " + words + " > a value"));
  EXPECT_THAT(joined, HasSubstr("1 would stop a job, 1 to look at"));
}

TEST(ReportTextTest, JsonHoldsEveryRow) {
  HostReport host{.host = "worker-1", .facts = {}};
  host.findings = {daemon::Ok("a", "1"), daemon::Warn("b", "2", "do")};
  const auto json = FormatReportJson(host);
  EXPECT_EQ(json["host"], "worker-1");
  EXPECT_EQ(json["level"], "warn");
  EXPECT_EQ(json["rows"][1]["name"], "b");
  EXPECT_EQ(json["rows"][1]["hint"], "do");
}

TEST(TryOffloadTest, LeavesNoFiles) {
  const ds::testing::TemporaryFolder folder;
  const v1::OffloadFacts facts = TryOffload(folder.path());
  EXPECT_EQ(facts.problem(), "");
  EXPECT_FALSE(facts.file_system().empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(TryOffload("/nonexistent/drive").problem(), HasSubstr("/nonexistent/drive on host "));
}

}  // namespace
}  // namespace ds::cli
