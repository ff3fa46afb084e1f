#include "client/past_api.h"

#include <fmt/format.h>

#include <charconv>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "archive/merged_tree.h"
#include "client/head_settings.h"
#include "client/past_file.h"
#include "cluster/apply.h"
#include "core/text.h"
#include "core/timestamp.h"
#include "head/documents.h"
#include "head/history.h"
#include "head/log_file.h"
#include "head/outputs.h"
#include "os/files.h"
#include "terminal/document.h"

namespace rubato::cli {
namespace {

using cluster::Record;
using cluster::State;
using nlohmann::json;

constexpr size_t kRecentEvents = 10;
constexpr size_t kJobEvents = 20;

// "jobs/x/logs?rank=1&tail=5" in its parts.
struct Target {
  std::vector<std::string> path;
  std::map<std::string, std::string> query;

  std::optional<uint64_t> number(const std::string& name) const {
    const auto found = query.find(name);
    if (found == query.end()) return std::nullopt;
    uint64_t value = 0;
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    return value;
  }
  std::optional<WallTime> time(const std::string& name) const {
    const auto found = query.find(name);
    return found == query.end() ? std::nullopt : parse_time(found->second);
  }
};

// What url_part() made of a text.
std::string plain(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    if (text[i] == '%' && std::from_chars(digits.begin(), digits.end(), code, 16).ptr == digits.end()) {
      out += static_cast<char>(code);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

Target parse_target(std::string_view text) {
  Target out;
  const auto parts = split_once(text, '?');
  for (const std::string_view part : split(parts ? parts->first : text, '/')) out.path.push_back(plain(part));
  for (const std::string_view one : parts ? split(parts->second, '&') : std::vector<std::string_view>{}) {
    const auto pair = split_once(one, '=');
    if (pair) out.query[plain(pair->first)] = plain(pair->second);
  }
  return out;
}

class PastApi final : public Api {
 public:
  PastApi(ClusterPlace place, BringPast bring) : place_(std::move(place)), bring_(std::move(bring)) {}

  json call(const ApiRequest& request) override {
    const Target target = parse_target(request.target);
    const auto& path = target.path;
    if (request.method != "GET") throw needs_head();
    if (path.front() == "status") return status(last());
    if (path.front() == "events") return events(target);
    if (path.front() == "replay") return status(replay(target));
    if (path.front() != "jobs" || path.size() > 3) throw needs_head();
    if (path.size() == 1) return api::to_json(head::jobs_document(last(), target.query.contains("all")));
    const cluster::Job& job = cluster::find_job(last(), path[1]);
    if (path.size() == 2) return job_detail(job);
    if (path[2] == "why") {
      api::Why why = head::why_job(last(), {}, job, last().time);
      why.queue = head::queue_document(last(), job);
      return api::to_json(why);
    }
    throw needs_head();
  }

  StreamEnd stream(const std::string& text, const std::function<void(std::string_view)>& sink) override {
    const Target target = parse_target(text);
    if (target.path.size() == 3 && target.path[0] == "jobs" && target.path[2] == "logs") {
      send_log(cluster::find_job(last(), target.path[1]).id, target, sink);
      return StreamEnd::kEnded;
    }
    if (target.path.size() == 3 && target.path[0] == "nodes" && target.path[2] == "log") {
      send_node_log(target.path[1], sink);
      return StreamEnd::kEnded;
    }
    if (target.path.size() == 3 && target.path[0] == "jobs" && target.path[2] == "output") {
      return send_output(cluster::find_job(last(), target.path[1]), sink);
    }
    throw needs_head();
  }

  void hold_interrupts() override {}
  bool pause(Duration) override { return true; }

 private:
  Error needs_head() const {
    return Error(ErrorCode::kNotFound, fmt::format("'{}' is down: only its head can do this", place_.name), "",
                 fmt::format("start it with: rubato up --cluster {}", place_.name));
  }

  // Once each: its path in the cluster's folder.
  void bring(const std::string& path) {
    if (bring_ && brought_.insert(path).second) bring_(path);
  }

  const PastJournal& journal() {
    if (journal_) return *journal_;
    if (const std::string store = bring_ ? "" : past_store(place_); !store.empty()) {
      journal_ = read_past_etcd(store, place_.name);
      return *journal_;
    }
    bring("journal.db");
    bring("journal.db-wal");
    if (bring_ && !files_.exists(place_.folder + "/journal.db")) {
      throw because(ErrorCause::kNoCluster,
                    Error(ErrorCode::kNotFound, fmt::format("'{}' is down, and its head has no journal", place_.name)));
    }
    journal_ = read_past_journal(place_.folder);
    return *journal_;
  }

  // The state after the records that `take` accepts, which are the first ones.
  State state_until(const std::function<bool(const Record&)>& take) {
    State state;
    if (journal().snapshot) state = cluster::decode_snapshot(journal().snapshot->bytes);
    for (const Record& record : records()) {
      if (record.offset <= state.offset) continue;
      if (!take(record)) break;
      cluster::apply(state, record);
    }
    return state;
  }

  const std::vector<Record>& records() {
    if (records_) return *records_;
    records_.emplace();
    for (const JournalRecord& one : journal().records) records_->push_back(cluster::decode(one.offset, one.bytes));
    return *records_;
  }

  const State& last() {
    if (!last_) last_ = state_until([](const Record&) { return true; });
    return *last_;
  }

  State replay(const Target& target) {
    const auto until = target.time("until");
    const auto offset = target.number("offset");
    if (offset) head::check_offset(*offset, last().offset);
    State state = state_until([&](const Record& record) {
      return (!until || record.time <= *until) && (!offset || record.offset <= *offset);
    });
    if (state.offset == 0 && !records().empty()) {
      throw Error(ErrorCode::kNotFound, fmt::format("the journal begins at {}", format_time(records().front().time)),
                  "", "ask for a later time");
    }
    return state;
  }

  json status(const State& state) {
    head::SharedRecords recent;
    for (const Record& record : records()) {
      if (record.offset <= state.offset && record.offset + kRecentEvents > state.offset)
        recent.push_back(std::make_shared<const Record>(record));
    }
    return api::to_json(head::status_document(state, recent, state.time));
  }

  json job_detail(const cluster::Job& job) {
    std::deque<api::Event> events;
    for (const Record& record : records()) {
      if (cluster::job_of(record.event) != job.id) continue;
      events.push_back(head::event_document(record));
      if (events.size() > kJobEvents) events.pop_front();
    }
    api::Job document = head::job_document(last(), job);
    document.events.emplace(events.begin(), events.end());
    return api::to_json(document);
  }

  json events(const Target& target) {
    const std::vector<Record>& all = records();
    const size_t limit = static_cast<size_t>(target.number("limit").value_or(100));
    const uint64_t first = all.empty() ? 0 : all.front().offset;
    const uint64_t after = target.number("after").value_or(all.size() > limit ? first + all.size() - limit - 1 : 0);
    api::Events document;
    for (const Record& record : all) {
      if (record.offset > after && document.events.size() < limit)
        document.events.push_back(head::event_document(record));
    }
    return api::to_json(document);
  }

  void send_log(const JobId& job, const Target& target, const std::function<void(std::string_view)>& sink) {
    bring("jobs/" + job.value + "/log");
    const std::string path = place_.folder + "/jobs/" + job.value + "/log";
    if (!files_.exists(path)) return;
    std::optional<int> rank;
    if (const auto wanted = target.number("rank")) rank = static_cast<int>(*wanted);
    head::read_log(files_, path, head::log_filter(rank, target.time("since")), target.number("tail"), sink);
  }

  StreamEnd send_output(const cluster::Job& job, const std::function<void(std::string_view)>& sink) {
    bring("jobs/" + job.id.value + "/output");
    for (const auto& [node, output] : job.outputs) bring("jobs/" + job.id.value + "/nodes/" + node.value);
    archive::MergedTree tree = archive::merge(files_, head::output_layers(files_, place_.folder + "/jobs", job));
    archive::MergedTar tar(files_, std::move(tree));
    while (const auto piece = tar.next()) sink(*piece);
    return StreamEnd::kEnded;
  }

  void send_node_log(const std::string& node, const std::function<void(std::string_view)>& sink) {
    const bool is_name = node.find('/') == std::string::npos && !node.starts_with('.');
    if (is_name) bring("nodes/" + node + ".log");
    const std::string path = place_.folder + "/nodes/" + node + ".log";
    if (!is_name || !files_.exists(path)) {
      throw Error(ErrorCode::kNotFound, fmt::format("the node '{}' has no log of its set-up", node), "",
                  "only nodes on machines of their own are set up");
    }
    sink(files_.read(path).value_or(""));
  }

  const ClusterPlace place_;
  const BringPast bring_;
  std::set<std::string> brought_;
  os::RealFiles files_;
  std::optional<PastJournal> journal_;
  std::optional<std::vector<Record>> records_;
  std::optional<State> last_;
};

}  // namespace

std::string past_store(const ClusterPlace& place) { return read_head_settings(place.folder).store; }

std::unique_ptr<Api> open_past_api(const ClusterPlace& place) {
  if (!os::RealFiles().exists(place.folder + "/journal.db") && past_store(place).empty()) return nullptr;
  return std::make_unique<PastApi>(place, nullptr);
}

std::unique_ptr<Api> open_past_api(const ClusterPlace& place, BringPast bring) {
  return std::make_unique<PastApi>(place, std::move(bring));
}

}  // namespace rubato::cli
