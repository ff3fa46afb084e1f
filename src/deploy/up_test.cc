// `up` and `down` on a machine and with a head that are made here.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/testing.h"
#include "deploy/cluster_commands.h"
#include "deploy/cluster_tools.h"
#include "deploy/head_unit.h"
#include "os/files.h"

namespace rubato::cli {
namespace {

using nlohmann::json;
using Calls = std::vector<std::string>;

// Daemons that run as soon as they are started, until they get SIGKILL or are told to end. A supervisor starts its
// head.
class FakeDaemons final : public Daemons {
 public:
  void start(const DaemonSpec& spec) override {
    started.push_back(spec);
    const size_t at = spec.folder.rfind("/supervisor");
    if (at != std::string::npos && !stillborn) alive.insert(spec.folder.substr(0, at) + "/head");
    if (!stillborn) alive.insert(spec.folder);
  }
  std::optional<int> running(const std::string& folder) override {
    return alive.contains(folder) ? std::optional(77) : std::nullopt;
  }
  void signal(const std::string& folder, int number) override {
    if (number == SIGKILL && alive.erase(folder) > 0 && on_kill) on_kill(folder);
  }
  std::function<void(const std::string& folder)> on_kill;
  std::vector<DaemonSpec> started;
  std::set<std::string> alive;
  bool stillborn = false;
};

// A machine with a home of its own, and the head that `up` finds or starts.
struct Machine {
  std::string home = scratch("rubato_up_test");
  std::string folder = home + "/rubato/clusters/local";
  os::RealFiles files;
  FakeDaemons daemons;
  CannedHead head;
  int identities = 0;
  std::string listen;
  int holds_refused = 0;  // so often is the folder held by somebody else
  json changes = json::array({{{"action", "add"}, {"node_type", "machine"}, {"count", 1}}});
  bool asks = false;
  std::string answer;
  bool has_systemd = false;
  std::vector<std::string> scripts;

  Machine() {
    std::filesystem::remove_all(home);
    head.reply("GET //healthz", {{"ok", true}});
    head.answers["PUT cluster"] = [this](const ApiRequest& request) {
      const json body = json::parse(request.body);
      const json plan = {{"changes", changes}, {"wanted_nodes", 1}};
      if (body.at("apply")) changes = json::array();
      return plan;
    };
    nodes("up");
  }
  ~Machine() { std::filesystem::remove_all(home); }

  void nodes(const char* phase) {
    const json node = {{"id", "machine-1"}, {"phase", phase}, {"why", "its agent has not called yet"}};
    head.reply("GET status", {{"nodes", json::array({node})}, {"totals", {{"running", 1}, {"queued", 0}}}});
  }
  void open_folder() {
    std::filesystem::create_directories(folder + "/head");
    std::ofstream(folder + "/head/head.json") << "{}";
  }
  size_t applied() const {
    size_t count = 0;
    for (const ApiRequest& one : head.asked) {
      count += one.method == "PUT" && json::parse(one.body).at("apply") == true ? 1 : 0;
    }
    return count;
  }
  Typed type(const std::vector<std::string>& args);
};

struct FakeHold final : FolderHold {};

class FakeTools final : public ClusterTools {
 public:
  explicit FakeTools(Machine& machine) : machine_(machine) {}
  Files& files() override { return machine_.files; }
  Daemons& daemons() override { return machine_.daemons; }
  MachineFacts machine() override { return {.cpus = 8, .gpus = 1}; }
  std::string program() override { return "/bin/rubato"; }
  void make_identity(const ClusterPlace& place, const std::string& listen) override {
    ++machine_.identities;
    machine_.listen = listen;
    machine_.files.make_folders(place.folder);
  }
  bool run_script(const std::string& script, const std::string&) override {
    machine_.scripts.push_back(script);
    const bool starts = script.find("systemctl --user start") != std::string::npos;
    if (machine_.has_systemd && starts)
      machine_.daemons.alive = {machine_.folder + "/supervisor", machine_.folder + "/head"};
    return machine_.has_systemd;
  }
  std::unique_ptr<FolderHold> try_hold(const ClusterPlace& place) override {
    machine_.files.make_folders(place.folder);
    return machine_.holds_refused-- > 0 ? nullptr : std::make_unique<FakeHold>();
  }

 private:
  Machine& machine_;
};

Typed Machine::type(const std::vector<std::string>& args) {
  Typed typed;
  Shell shell{.env = {{"XDG_STATE_HOME", home}, {"HOME", "/h"}}};
  shell.out = [&](std::string_view text) { typed.out += text; };
  shell.err = [&](std::string_view text) { typed.err += text; };
  shell.now = [] { return *parse_time("2026-11-15T04:00:00Z"); };
  shell.asks = asks;
  shell.read_line = [this] { return answer; };
  shell.open_api = [this](const ClusterPlace&) { return std::make_unique<CannedApi>(head); };
  shell.cluster_tools = [this] { return std::make_unique<FakeTools>(*this); };
  typed.code = run_cli(args, shell);
  return typed;
}

TEST(Up, WithoutAFileItStartsAHeadForThisMachine) {
  Machine machine;
  const Typed typed = machine.type({"up"});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_EQ(machine.identities, 1);
  ASSERT_EQ(machine.daemons.started.size(), 1u);
  const DaemonSpec& spec = machine.daemons.started[0];
  EXPECT_EQ(spec.folder, machine.folder + "/supervisor");
  EXPECT_EQ(spec.argv, (Calls{"/bin/rubato", "supervise", "--dir", machine.folder}));
  EXPECT_NE(typed.err.find("'local' is up with 1 node"), std::string::npos);
  const std::string kept = machine.files.read(machine.folder + "/cluster.yaml").value_or("");
  EXPECT_NE(kept.find("resources: {CPU: 8, GPU: 1}"), std::string::npos) << kept;
}

TEST(Up, TwiceChangesNothingAndSaysSo) {
  Machine machine;
  machine.type({"up"});
  machine.open_folder();
  const Typed again = machine.type({"up"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(machine.daemons.started.size(), 1u);
  EXPECT_EQ(again.err, "nothing to change: 'local' is up with 1 node\n");
}

TEST(Up, ADryRunTouchesNothing) {
  Machine machine;
  const Typed fresh = machine.type({"up", "--dry-run"});
  EXPECT_EQ(fresh.out, "would start the head of 'local'\n  + add 1 machine node  (8 CPU, 1 GPU each)\n");
  EXPECT_FALSE(std::filesystem::exists(machine.home));
  machine.open_folder();
  machine.daemons.alive.insert(machine.folder + "/head");
  EXPECT_EQ(machine.type({"up", "--dry-run"}).out, "  + add 1 machine node\n");
  EXPECT_EQ(machine.applied(), 0u);
}

TEST(Up, ADryRunAsJsonIsJson) {
  Machine machine;
  const json fresh = json::parse(machine.type({"up", "--dry-run", "--json"}).out);
  EXPECT_EQ(fresh["cluster"], "local");
  EXPECT_EQ(fresh["starts_head"], true);
  EXPECT_EQ(fresh["changes"][0]["count"], 1);
  machine.open_folder();
  machine.daemons.alive.insert(machine.folder + "/head");
  const json running = json::parse(machine.type({"up", "--dry-run", "--json"}).out);
  EXPECT_EQ(running["starts_head"], false);
  EXPECT_EQ(running["changes"][0]["action"], "add");
  EXPECT_EQ(machine.applied(), 0u);
}

TEST(Up, SaysWhatItAppliesWhenOnlyASettingChanged) {
  Machine machine;
  machine.type({"up"});
  machine.open_folder();
  machine.changes =
      json::array({{{"action", "setting"}, {"node_type", "idle_timeout"}, {"count", 0}, {"why", "5m → 1m"}},
                   {{"action", "text"}, {"why", "no node and no limit changes"}}});
  const Typed typed = machine.type({"up"});
  EXPECT_EQ(typed.code, 0);
  EXPECT_TRUE(
      typed.err.starts_with("  ~ idle_timeout  (5m → 1m)\n"
                            "  ~ take the file's new text  (no node and no limit changes)\n"
                            "'local' is up with 1 node"))
      << typed.err;
  EXPECT_EQ(machine.applied(), 2u);
}

TEST(Up, AFilesMistakeIsFoundBeforeAnythingStarts) {
  Machine machine;
  std::filesystem::create_directories(machine.home);
  const std::string file = machine.home + "/c.yaml";
  std::ofstream(file) << "provider: {type: local}\nmax_worker: 3\n";
  const Typed typed = machine.type({"up", file});
  EXPECT_EQ(typed.code, 2);
  EXPECT_NE(typed.err.find("c.yaml:"), std::string::npos);
  EXPECT_TRUE(machine.daemons.started.empty());
  EXPECT_EQ(machine.type({"up", "/no/such.yaml"}).code, 2);
}

TEST(Up, AFilesNameIsTheClusters) {
  Machine machine;
  std::filesystem::create_directories(machine.home);
  const std::string file = machine.home + "/c.yaml";
  std::ofstream(file) << "cluster_name: lab\nprovider: {type: local}\n"
                         "available_node_types: {a: {resources: {CPU: 1}, min_workers: 1}}\n";
  EXPECT_EQ(machine.type({"up", file}).code, 0);
  EXPECT_EQ(machine.daemons.started.at(0).folder, machine.home + "/rubato/clusters/lab/supervisor");
  const Typed other = machine.type({"up", file, "--cluster", "zoo"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("is the cluster 'lab', not 'zoo'"), std::string::npos);
}

TEST(Up, NodesThatDoNotComeAreNamedWithTheirReason) {
  Machine machine;
  machine.nodes("starting");
  const Typed typed = machine.type({"up", "--timeout", "2"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_NE(typed.err.find("0 of 1 node are up after 2.0s"), std::string::npos) << typed.err;
  EXPECT_NE(typed.err.find("machine-1 is starting"), std::string::npos);
  EXPECT_NE(typed.err.find("its agent has not called yet"), std::string::npos);
}

TEST(Up, AHeadThatDiesAtOnceShowsItsLastWords) {
  Machine machine;
  machine.daemons.stillborn = true;
  machine.head.answers["GET //healthz"] = [](const ApiRequest&) -> json {
    throw Error(ErrorCode::kUnavailable, "refused");
  };
  std::filesystem::create_directories(machine.folder + "/head");
  std::ofstream(machine.folder + "/head/daemon.log") << "error: the disk is full\n";
  const Typed typed = machine.type({"up"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_NE(typed.err.find("ended as it started"), std::string::npos);
  EXPECT_NE(typed.err.find("the disk is full"), std::string::npos);
}

TEST(Up, AFirstStartThatFailsLeavesNoSupervisor) {
  Machine machine;
  machine.head.answers["GET //healthz"] = [](const ApiRequest&) -> json {
    throw Error(ErrorCode::kUnavailable, "refused");
  };
  machine.head.on_pause = [&] {
    machine.daemons.alive.erase(machine.folder + "/head");
    std::ofstream(machine.folder + "/head/ended.json") << R"({"message": "etcd does not answer", "hint": ""})";
    return true;
  };
  const Typed typed = machine.type({"up"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_NE(typed.err.find("cannot start: etcd does not answer"), std::string::npos) << typed.err;
  EXPECT_TRUE(machine.daemons.alive.empty());
  EXPECT_FALSE(std::filesystem::exists(machine.folder + "/supervisor"));
  // One that was up before is tried again and again.
  machine.open_folder();
  EXPECT_EQ(machine.type({"up"}).code, 1);
  EXPECT_TRUE(machine.daemons.alive.contains(machine.folder + "/supervisor"));
  EXPECT_EQ(machine.files.read(machine.folder + "/supervisor/wanted"), "rubato\n");
}

TEST(Up, AHeadThatDiesAgainAndAgainIsToldOf) {
  Machine machine;
  machine.head.answers["GET //healthz"] = [](const ApiRequest&) -> json {
    throw Error(ErrorCode::kUnavailable, "refused");
  };
  machine.head.on_pause = [&] {
    machine.daemons.alive.erase(machine.folder + "/head");
    std::ofstream(machine.folder + "/supervisor/state.json") << R"({"ends_in_a_row": 3, "last_end": "signal 11"})";
    return true;
  };
  const Typed typed = machine.type({"up"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_NE(typed.err.find("ended as it started (signal 11, 3 times in a row)"), std::string::npos) << typed.err;
}

TEST(Up, AHeadThatItsSupervisorStartsMeanwhileIsTaken) {
  Machine machine;
  machine.open_folder();
  machine.daemons.alive = {machine.folder + "/supervisor"};
  machine.daemons.on_kill = [&](const std::string&) { machine.daemons.alive.insert(machine.folder + "/head"); };
  const Typed typed = machine.type({"up"});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_TRUE(std::filesystem::exists(machine.folder + "/head/head.json")) << "the new head's address, perhaps";
  ASSERT_EQ(machine.daemons.started.size(), 1u);
  EXPECT_EQ(machine.daemons.started[0].folder, machine.folder + "/supervisor");
}

TEST(Up, AHeadThatRunsWithoutASupervisorGetsOne) {
  Machine machine;
  machine.open_folder();
  machine.daemons.alive = {machine.folder + "/head"};
  EXPECT_EQ(machine.type({"up"}).code, 0);
  ASSERT_EQ(machine.daemons.started.size(), 1u);
  EXPECT_EQ(machine.daemons.started[0].folder, machine.folder + "/supervisor");
  EXPECT_EQ(machine.type({"up"}).code, 0);
  EXPECT_EQ(machine.daemons.started.size(), 1u);
}

TEST(Up, TheUsersSystemdKeepsTheSupervisorWhereItLingers) {
  Machine machine;
  machine.has_systemd = true;
  EXPECT_EQ(machine.type({"up"}).code, 0);
  EXPECT_TRUE(machine.daemons.started.empty());
  EXPECT_EQ(machine.files.read(machine.folder + "/supervisor/wanted"), "systemd\n");
  const std::string kept = machine.files.read(machine.folder + "/supervisor/environment").value_or("");
  EXPECT_NE(kept.find(std::string("HOME=/h") + '\0'), std::string::npos);
  machine.open_folder();
  machine.head.answers["POST shutdown"] = [&](const ApiRequest&) {
    machine.daemons.alive.erase(machine.folder + "/head");
    return json::object();
  };
  EXPECT_EQ(machine.type({"down", "-y"}).code, 0);
  EXPECT_NE(machine.scripts.back().find("systemctl --user disable"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(machine.folder + "/supervisor"));
}

TEST(HeadUnit, SaysWhatSystemdMustKnow) {
  const HeadUnit unit = head_unit("/opt/my programs/rubato", "lab", "/home/a%b/lab");
  EXPECT_TRUE(unit.name.starts_with("rubato-head-lab-") && unit.name.ends_with(".service")) << unit.name;
  EXPECT_NE(unit.name, head_unit("/opt/my programs/rubato", "lab", "/elsewhere/lab").name);
  const std::string text = unit_text(unit);
  EXPECT_NE(text.find("ExecStart=\"/opt/my programs/rubato\" daemon start \"/home/a%%b/lab/supervisor\" supervise "
                      "--dir \"/home/a%%b/lab\"\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("PIDFile=/home/a%%b/lab/supervisor/daemon.pid\n"), std::string::npos) << text;
  EXPECT_NE(text.find("KillMode=process\n"), std::string::npos) << "agents outlive a head";
}

TEST(Up, WaitsForAnotherUpAndSaysSo) {
  Machine machine;
  machine.holds_refused = 3;
  const Typed typed = machine.type({"up"});
  EXPECT_EQ(typed.code, 0);
  EXPECT_NE(typed.err.find("waiting for another rubato up"), std::string::npos);
}

TEST(Up, AsksBeforeNodesAreTakenAway) {
  Machine machine;
  machine.open_folder();
  machine.daemons.alive.insert(machine.folder + "/head");
  machine.changes = json::array({{{"action", "remove"}, {"node_type", "small"}, {"count", 2}}});
  machine.asks = true;
  machine.answer = "n";
  EXPECT_EQ(machine.type({"up"}).code, 1);
  EXPECT_EQ(machine.applied(), 0u);
  EXPECT_EQ(machine.type({"up", "-y"}).code, 0);
  EXPECT_EQ(machine.applied(), 1u);
}

TEST(Up, TheStoreOfARunningHeadCannotBeChanged) {
  Machine machine;
  EXPECT_EQ(machine.type({"up", "--store", "etcd://a:2379"}).code, 0);
  EXPECT_NE(machine.files.read(machine.folder + "/head/settings.json").value_or("").find("etcd://a:2379"),
            std::string::npos);
  machine.open_folder();
  EXPECT_EQ(machine.type({"up", "--store", "etcd://a:2379"}).code, 0);
  EXPECT_EQ(machine.type({"up", "--store", "etcd://b:2379"}).code, 2);
  EXPECT_EQ(machine.type({"up", "--store", "redis://b"}).code, 2);
}

TEST(Up, TheAddressOfARunningHeadCannotBeChanged) {
  Machine machine;
  EXPECT_EQ(machine.type({"up", "--listen", "10.0.0.1"}).code, 0);
  EXPECT_EQ(machine.listen, "10.0.0.1") << "the head's certificate must name it";
  machine.open_folder();
  EXPECT_EQ(machine.type({"up"}).code, 0);
  const Typed typed = machine.type({"up", "--listen", "10.0.0.2"});
  EXPECT_EQ(typed.code, 2);
  EXPECT_NE(typed.err.find("listens at 10.0.0.1"), std::string::npos) << typed.err;
}

TEST(Down, EndsTheHeadAndKillsWhatItLeft) {
  Machine machine;
  machine.open_folder();
  const std::string agent = machine.folder + "/nodes/machine-1";
  std::filesystem::create_directories(agent);
  machine.daemons.alive = {machine.folder + "/head", agent};
  machine.head.answers["POST shutdown"] = [&](const ApiRequest&) {
    machine.daemons.alive.erase(machine.folder + "/head");
    return json::object();
  };
  const Typed typed = machine.type({"down", "-y"});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_TRUE(machine.daemons.alive.empty());
  EXPECT_TRUE(std::filesystem::exists(agent)) << "the next head saves its last log lines, and removes it";
  EXPECT_FALSE(std::filesystem::exists(machine.folder + "/head/head.json"));
  EXPECT_TRUE(std::filesystem::exists(machine.folder));
}

TEST(Down, EndsTheSupervisorBeforeTheHead) {
  Machine machine;
  EXPECT_EQ(machine.type({"up"}).code, 0);
  machine.open_folder();
  machine.head.answers["POST shutdown"] = [&](const ApiRequest&) {
    EXPECT_EQ(machine.daemons.alive, std::set<std::string>{machine.folder + "/head"});
    machine.daemons.alive.clear();
    return json::object();
  };
  EXPECT_EQ(machine.type({"down", "-y"}).code, 0);
  EXPECT_TRUE(machine.daemons.alive.empty());
  EXPECT_FALSE(std::filesystem::exists(machine.folder + "/supervisor"));
}

TEST(Down, AHeadThatIsDeadIsNoHindrance) {
  Machine machine;
  machine.open_folder();
  const std::string agent = machine.folder + "/nodes/machine-1";
  std::filesystem::create_directories(agent);
  machine.daemons.alive = {agent};
  EXPECT_EQ(machine.type({"down", "-y"}).code, 0);
  EXPECT_TRUE(machine.daemons.alive.empty());
  EXPECT_FALSE(machine.head.asked.empty()) << "one is started that writes down the end of its jobs";
}

TEST(Down, AHeadThatDoesNotAnswerOrEndIsKilled) {
  Machine machine;
  machine.open_folder();
  machine.daemons.alive = {machine.folder + "/head"};
  machine.head.reply("POST shutdown", json::object());
  const Typed slow = machine.type({"down", "-y", "--timeout", "1"});
  EXPECT_EQ(slow.code, 0);
  EXPECT_NE(slow.err.find("it is killed"), std::string::npos);
  EXPECT_TRUE(machine.daemons.alive.empty());
}

TEST(Down, AsksAndKeepsEverythingOnNo) {
  Machine machine;
  machine.open_folder();
  machine.daemons.alive = {machine.folder + "/head"};
  machine.asks = true;
  machine.answer = "";
  const Typed typed = machine.type({"down"});
  EXPECT_EQ(typed.code, 1);
  EXPECT_NE(typed.err.find("end 'local': 0 nodes, 1 unfinished job?"), std::string::npos) << typed.err;
  EXPECT_FALSE(machine.daemons.alive.empty());
}

TEST(Down, PurgeLeavesNothing) {
  Machine machine;
  machine.open_folder();
  EXPECT_EQ(machine.type({"down", "-y", "--purge"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(machine.folder));
  EXPECT_EQ(machine.type({"down"}).code, 1);
}

TEST(Down, OfAClusterThatIsDownSaysSo) {
  Machine machine;
  machine.open_folder();
  EXPECT_EQ(machine.type({"down", "-y"}).code, 0);
  const Typed again = machine.type({"down"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.err, "'local' is down already\n");
}

TEST(Down, PurgeSaysWhatItLeavesInEtcd) {
  Machine machine;
  machine.open_folder();
  std::ofstream(machine.folder + "/head/settings.json") << R"({"store": "etcd://e0:2379", "isolated": false})";
  const Typed typed = machine.type({"down", "-y", "--purge"});
  EXPECT_NE(typed.err.find("its journal stays in etcd://e0:2379"), std::string::npos) << typed.err;
  EXPECT_FALSE(std::filesystem::exists(machine.folder));
}

TEST(Up, SaysWhatItWarnsOfInAFile) {
  Machine machine;
  const std::string file = machine.home + "/c.yaml";
  std::filesystem::create_directories(machine.home);
  std::ofstream(file) << "provider: {type: local}\nnode_types: {machine: {resources: {CPU: 1}, min_workers: 1}}\n";
  const Typed typed = machine.type({"up", file});
  EXPECT_EQ(typed.code, 0) << typed.err;
  EXPECT_TRUE(typed.err.starts_with(file + ":1:1: warning: the file has no cluster_name; 'local' is taken"))
      << typed.err;
  EXPECT_EQ(machine.type({"up"}).err.find("warning"), std::string::npos);
  const Typed named = machine.type({"up", "--dry-run", "--cluster-name", "other", "--min-workers", "0", file});
  EXPECT_EQ(named.err, "") << "neither of what a flag mends, nor of what it adds";
}

TEST(Up, RefusesAFileThatNoHeadWouldTake) {
  Machine machine;
  const std::string file = machine.home + "/c.yaml";
  std::filesystem::create_directories(machine.home);
  std::ofstream(file) << "cluster_name: local\nprovider: {type: local}\n" << std::string(size_t{1} << 20, '#') << "\n";
  const Typed typed = machine.type({"up", file});
  EXPECT_EQ(typed.code, 2);
  EXPECT_NE(typed.err.find("the cluster file has 1025 KiB; it may have 480 at most"), std::string::npos) << typed.err;
  EXPECT_TRUE(machine.daemons.started.empty());
}

}  // namespace
}  // namespace rubato::cli
