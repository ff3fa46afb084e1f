#include "elastic/job_order_json.h"

#include <algorithm>

#include "elastic/checkpoints_json.h"
#include "elastic/wire_json.h"

namespace rubato::elastic::wire {

namespace {

constexpr size_t kReportFailuresMax = kOrderWorkersMax;

json in_place_json(const InPlaceReport& r) {
  return {{"slots", slots_json(r.workers.slots)},
          {"store", store_json(r.workers.store)},
          {"stopped", r.workers.stopped},
          {"finished", r.workers.finished},
          {"planned", r.planned},
          {"living", r.living},
          {"settled", r.settled},
          {"broken", r.broken}};
}

InPlaceReport read_in_place(const json& j) {
  InPlaceReport r;
  r.workers.slots = read_slots(j);
  r.workers.store = read_store(j.at("store"));
  r.workers.stopped = j.at("stopped").get<bool>();
  r.workers.finished = j.at("finished").get<bool>();
  r.planned = number<uint64_t>(j, "planned");
  r.living = number<int>(j, "living");
  r.settled = j.at("settled").get<bool>();
  r.broken = cut_text(j, "broken");
  return r;
}

json report_json(const JobOrderReport& r, Instant now) {
  json j = {{"job", r.job.value},
            {"generation", r.generation},
            {"state", static_cast<int>(r.state)},
            {"port", r.port},
            {"failures", failures_json(r.failures, now)},
            {"problem", r.problem},
            {"forced", r.forced},
            {"succeeded", r.succeeded}};
  if (r.fenced) j["fenced"] = true;
  if (r.in_place) j["in_place"] = in_place_json(*r.in_place);
  return j;
}

JobOrderReport read_report(const json& j, Instant now) {
  JobOrderReport r;
  r.job.value = id_text(j, "job");
  r.generation = number<uint64_t>(j, "generation");
  r.state = read_enum(j, "state", JobOrderState::kGone);
  r.port = number<uint16_t>(j, "port");
  r.failures = read_failures(list_at(j, "failures", kReportFailuresMax), now);
  r.problem = cut_text(j, "problem");
  r.forced = list_at(j, "forced", kOrderWorkersMax).get<std::vector<std::string>>();
  if (j.contains("succeeded")) r.succeeded = number<uint64_t>(j, "succeeded");  // older agents do not say it
  if (j.contains("fenced")) r.fenced = j.at("fenced").get<bool>();
  if (j.contains("in_place")) r.in_place = read_in_place(j.at("in_place"));
  for (std::string& one : r.forced) one.resize(std::min(one.size(), kNameMax));
  return r;
}

json witnesses_json(const std::vector<WitnessAddress>& witnesses) {
  json list = json::array();
  for (const WitnessAddress& one : witnesses) list.push_back({one.agent.value, one.address, one.port});
  return list;
}

std::vector<WitnessAddress> read_witnesses(const json& j) {
  std::vector<WitnessAddress> witnesses;
  for (const json& entry : list_at(j, "witnesses", kWitnessesMax)) {
    if (!entry.is_array() || entry.size() != 3) not_ours("a witness of the wrong length");
    WitnessAddress one;
    one.agent.value = entry.at(0).get<std::string>();
    one.address = entry.at(1).get<std::string>();
    one.port = number<uint16_t>(entry, size_t{2});
    if (one.agent.value.size() > kNameMax || one.address.size() > kNameMax) not_ours("a witness with a long name");
    witnesses.push_back(std::move(one));
  }
  return witnesses;
}

}  // namespace

std::string short_text(const json& object, const char* key) {
  auto text = object.at(key).get<std::string>();
  if (text.size() > kNameMax) not_ours(fmt::format("'{}' has {} bytes, more than {}", key, text.size(), kNameMax));
  return text;
}

// An id becomes the name of a folder: nothing in it may lead elsewhere.
std::string id_text(const json& object, const char* key) {
  std::string text = short_text(object, key);
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  if (text.empty() || text.front() == '.' || !std::ranges::all_of(text, harmless)) {
    not_ours(fmt::format("'{}' is no id", key));
  }
  return text;
}

std::string hash_text(const json& object, const char* key) {
  auto text = object.at(key).get<std::string>();
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != 64 || !std::ranges::all_of(text, digit)) not_ours(fmt::format("'{}' is no sha256", key));
  return text;
}

// Never negative: all durations of this protocol are spans to wait.
Duration span(const json& object, const char* key) {
  const Duration duration = from_micros(number<int64_t>(object, key));
  if (duration < 0s) not_ours(fmt::format("'{}' is negative", key));
  return duration;
}

json agents_json(const std::vector<AgentId>& agents) {
  json list = json::array();
  for (const AgentId& agent : agents) list.push_back(agent.value);
  return list;
}

std::vector<AgentId> read_agents(const json& j, const char* key) {
  std::vector<AgentId> agents;
  if (!j.contains(key)) return agents;  // of an older version
  for (const json& entry : list_at(j, key, kFenceMax)) {
    agents.push_back(AgentId{entry.get<std::string>()});
    if (agents.back().value.size() > kNameMax) not_ours("the id of an agent is too long");
  }
  return agents;
}

json rounds_json(const std::vector<RoundId>& rounds) {
  json list = json::array();
  for (const RoundId& round : rounds) list.push_back({round.job.value, round.generation});
  return list;
}

std::vector<RoundId> read_rounds(const json& j) {
  std::vector<RoundId> rounds;
  for (const json& entry : list_at(j, "rounds", kJobOrdersMax)) {
    if (!entry.is_array() || entry.size() != 2) not_ours("a round of the wrong length");
    RoundId round;
    round.job.value = entry.at(0).get<std::string>();
    round.generation = number<uint64_t>(entry, size_t{1});
    if (round.job.value.size() > kNameMax) not_ours("the id of a job is too long");
    rounds.push_back(std::move(round));
  }
  return rounds;
}

json job_order_json(const JobOrder& e) {
  json j = {{"job", e.job.value},
            {"generation", e.generation},
            {"phase", static_cast<int>(e.phase)},
            {"workers", e.workers},
            {"grace_us", to_micros(e.grace)},
            {"place", assignment_json(e.place)},
            {"master_addr", e.master_addr},
            {"master_port", e.master_port},
            {"restarts_used", e.restarts_used},
            {"output", e.output}};
  if (!e.peers.empty()) {
    json peers = json::array();
    for (const PeerSeat& peer : e.peers) peers.push_back({peer.address, peer.workers});
    j["peers"] = std::move(peers);
  }
  if (e.kept > 0) j["kept"] = e.kept;
  if (e.plan) j["plan"] = plan_json(*e.plan);
  if (e.phase == Phase::kRunning || e.kept > 0) {
    j["lease_us"] = to_micros(e.lease);
    j["witnesses"] = witnesses_json(e.witnesses);
  }
  if (!e.checkpoints.empty()) j["checkpoints"] = to_json(e.checkpoints);
  if (e.more_checkpoints) j["more_checkpoints"] = true;
  // To end a job nothing need be known of it.
  if (e.spec != JobSpec{}) j["spec"] = to_json(e.spec);
  return j;
}

JobOrder read_job_order(const json& j) {
  JobOrder e;
  e.job.value = id_text(j, "job");
  e.generation = number<uint64_t>(j, "generation");
  e.phase = read_enum(j, "phase", Phase::kEnded);
  e.workers = number<int>(j, "workers");
  if (e.workers < 0 || e.workers > kOrderWorkersMax) not_ours(fmt::format("a job order of {} workers", e.workers));
  e.grace = span(j, "grace_us");
  e.place = read_assignment(j.at("place"));
  e.master_addr = j.at("master_addr").get<std::string>();
  e.master_port = number<uint16_t>(j, "master_port");
  e.restarts_used = number<int>(j, "restarts_used");
  e.output = j.at("output").get<std::string>();
  if (j.contains("peers")) {
    for (const json& entry : list_at(j, "peers", kPeersMax)) {
      const int workers = number<int>(entry, size_t{1});
      if (workers < 0 || workers > kOrderWorkersMax) not_ours(fmt::format("a seat of {} workers", workers));
      e.peers.push_back({entry.at(0).get<std::string>(), workers});
    }
  }
  if (j.contains("kept")) e.kept = number<uint64_t>(j, "kept");
  if (j.contains("plan")) e.plan = read_plan(j.at("plan"));
  if (j.contains("lease_us")) e.lease = span(j, "lease_us");
  if (j.contains("witnesses")) e.witnesses = read_witnesses(j);
  if (j.contains("checkpoints")) e.checkpoints = checkpoint_items_from_json(j.at("checkpoints"));
  e.more_checkpoints = j.value("more_checkpoints", false);
  if (j.contains("spec")) {
    e.spec = job_spec_from_json(j.at("spec"));
  } else if (e.phase == Phase::kRunning) {
    not_ours("workers are to run, but it is not said which");
  }
  return e;
}

json reports_json(const std::vector<JobOrderReport>& reports, Instant now) {
  json list = json::array();
  for (const JobOrderReport& report : reports) list.push_back(report_json(report, now));
  return list;
}

std::vector<JobOrderReport> read_reports(const json& j, Instant now) {
  std::vector<JobOrderReport> reports;
  for (const json& entry : list_at(j, "errands", kJobOrdersMax)) reports.push_back(read_report(entry, now));
  return reports;
}

}  // namespace rubato::elastic::wire
