// LibraryModel: what workers with the training library do, in virtual time, at the agents' plan boards.
//
//   starting ──▶ ready ──a plan has it──▶ meeting(g) ──all members meet──▶ training(g) ──newer plan──▶ left(g) ──▶ …
//                                           broken(g) ◀──a member died, or is lost by the plan
//
// It moves in ticks. After each of them the rules are checked: a generation of a job has one plan, and no two groups of
// a job train at once. A group trains while all its members live, are in it and reach each other.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "sim/simulation.h"
#include "world/in_place.h"

namespace rubato::sim {

class LibraryModel final : public InPlaceHost {
 public:
  explicit LibraryModel(Simulation& sim) : sim_(sim) {}

  static constexpr Duration kTick = 20ms;
  void start() {
    sim_.simulator.at(sim_.now() + kTick, [this] { tick(); });
  }

  Instant ends = Instant::max();  // the training is done
  std::vector<std::string> broken;
  uint64_t newest_training = 0;               // generation
  std::set<std::string> members_now;          // of the group that trains
  std::set<std::string> full;                 // boards that take no more plans
  std::set<std::string> dying;                // killed: its peers know, its agent does not yet
  std::map<std::string, uint64_t> groups_of;  // how many generations each worker has trained in

  std::unique_ptr<PlanBoard> make_board(std::function<void()> on_report) override {
    return std::make_unique<Board>(*this, fmt::format("/plans/{}", ++boards_made_), std::move(on_report));
  }
  std::unique_ptr<MeetingStore> open_store(const std::string&, bool) override { return std::make_unique<FakeStore>(); }

 private:
  struct FakeStore final : MeetingStore {
    uint16_t port() const override { return 4711; }
  };
  using Group = std::pair<std::string, uint64_t>;  // a generation of a job
  struct Plan {
    std::vector<std::string> members;
    std::set<std::string> lost;
    bool has(const std::string& id) const { return std::ranges::find(members, id) != members.end(); }
  };
  class Board final : public PlanBoard {
   public:
    Board(LibraryModel& model, std::string path, std::function<void()> on_report)
        : model_(model), boards_(model.boards_), path_(std::move(path)), on_report_(std::move(on_report)) {
      (*boards_)[path_] = this;
    }
    ~Board() override { boards_->erase(path_); }
    const std::string& path() const override { return path_; }
    void publish(uint64_t generation, const std::string& text) override {
      if (model_.full.contains(path_)) throw Error(ErrorCode::kFailed, "no space left on device", path_);
      const auto document = nlohmann::json::parse(text);
      plan = Plan{};
      for (const auto& member : document["members"]) plan.members.push_back(member["id"]);
      for (const auto& id : document["lost"]) plan.lost.insert(id.get<std::string>());
      if (generation <= this->generation) model_.add_broken("a plan that is not newer");
      this->generation = generation;
      unlearned_[generation] = plan.members;
      if (!job_.empty()) learn(job_);
    }
    // Whose it is shows with its first worker.
    void learn(const std::string& job) {
      job_ = job;
      for (const auto& [of, members] : std::exchange(unlearned_, {})) model_.learn({job, of}, members);
    }
    std::optional<std::string> report(const std::string& worker) override {
      const auto it = reports_.find(worker);
      return it == reports_.end() ? std::nullopt : std::optional(it->second);
    }
    void set_report(const std::string& worker, const char* state, uint64_t of) {
      reports_[worker] = nlohmann::json{{"state", state}, {"generation", of}}.dump();
      on_report_();
    }
    uint64_t generation = 0;
    Plan plan;

   private:
    LibraryModel& model_;
    std::shared_ptr<std::map<std::string, Board*>> boards_;  // agents may go after the model
    std::string path_;
    std::function<void()> on_report_;
    std::map<std::string, std::string> reports_;
    std::string job_;
    std::map<uint64_t, std::vector<std::string>> unlearned_;
  };

  enum class State { kStarting, kReady, kMeeting, kTraining, kLeft, kBroken };
  struct Worker {
    uint64_t process = 0;
    int machine = 0;
    std::string job;
    Board* board = nullptr;
    State state = State::kStarting;
    uint64_t generation = 0;
    bool alive = false;
    bool acts = false;  // started, and its machine is not frozen
    Group group() const { return {job, generation}; }
  };

  void tick() {
    see();
    for (auto& [id, worker] : workers_) {
      if (worker.alive && worker.acts) move(id, worker);
    }
    meet();
    sim_.simulator.at(sim_.now() + kTick, [this] { tick(); });
  }

  void see() {
    for (auto& [id, worker] : workers_) worker.alive = false;
    for (const auto& [process, record] : sim_.workers.live()) {
      const auto id = record.env.find("RUBATO_WORKER_ID");
      const auto path = record.env.find("RUBATO_PLAN_DIR");
      if (id == record.env.end() || path == record.env.end()) continue;
      const auto board = boards_->find(path->second);
      if (board == boards_->end()) continue;  // its agent is gone, and it is about to be
      Worker& worker = workers_[id->second];
      if (worker.process != 0 && worker.process != process) add_broken("a name was used twice: " + id->second);
      worker.process = process;
      worker.machine = static_cast<int>(record.machine);
      worker.job = record.run_id;
      worker.board = board->second;
      worker.board->learn(worker.job);
      worker.alive = !dying.contains(id->second);
      worker.acts = record.trained_from.has_value() && !sim_.machine(worker.machine).frozen();
    }
  }

  bool reach(const Worker& a, const Worker& b) const {
    const auto one = static_cast<NodeId>(a.machine), other = static_cast<NodeId>(b.machine);
    return one == other || sim_.network.round_trip(one, other);
  }

  // All members live, are in this group, and reach each other.
  bool whole(const Group& group, bool meeting) const {
    const auto& members = plans_.at(group);
    const auto first = workers_.find(members.front());
    return first != workers_.end() && std::ranges::all_of(members, [&](const std::string& id) {
             const auto it = workers_.find(id);
             if (it == workers_.end()) return false;
             const Worker& one = it->second;
             const bool in = one.group() == group &&
                             (one.state == State::kTraining || (meeting && one.state == State::kMeeting));
             return one.alive && one.acts && in && reach(one, first->second);
           });
  }

  bool member_died(const Worker& worker) const {
    return std::ranges::any_of(plans_.at(worker.group()), [&](const std::string& id) {
      const auto it = workers_.find(id);
      if (it == workers_.end()) return false;
      const Worker& one = it->second;
      // Its kernel tells, if it can.
      const bool there = sim_.machine(one.machine).up() && !sim_.machine(one.machine).frozen() && reach(worker, one);
      // One of an older generation has not come yet: it is waited for.
      const bool left = one.generation == worker.generation && one.state == State::kBroken;
      const bool gone = !one.alive || one.generation > worker.generation || left;
      return gone && there && one.process != 0;
    });
  }

  void report(const std::string& id, Worker& worker, State state, const char* text) {
    worker.state = state;
    worker.board->set_report(id, text, worker.generation);
  }

  void move(const std::string& id, Worker& worker) {
    const Board& board = *worker.board;
    const bool in_group = worker.state == State::kMeeting || worker.state == State::kTraining;
    if (worker.state == State::kStarting && !board.plan.has(id)) return report(id, worker, State::kReady, "ready");
    if (worker.state == State::kTraining && whole(worker.group(), false)) {
      if (sim_.now() >= ends) {
        done_.insert(worker.group());
      }
      // One that knows of a newer plan makes all of them leave after the step.
      const auto& members = plans_.at(worker.group());
      const bool newer = std::ranges::any_of(
          members, [&](const std::string& one) { return workers_.at(one).board->generation > worker.generation; });
      if (done_.contains(worker.group())) {
        if (sim_.simulator.random().chance(0.3)) sim_.workers.end(worker.process, ExitStatus{0, 0});
      } else if (newer) {
        for (const std::string& one : members) workers_.at(one).state = State::kLeft;
      }
      return;
    }
    if (worker.state == State::kTraining && done_.contains(worker.group())) {
      sim_.workers.end(worker.process, ExitStatus{0, 0});
      return;
    }
    if (in_group && board.generation == worker.generation) {
      if (member_died(worker)) report(id, worker, State::kBroken, "broken");
      return;
    }
    if (worker.state == State::kTraining) {
      const auto& members = plans_.at(worker.group());
      const auto is_lost = [&](const std::string& one) { return board.plan.lost.contains(one); };
      const bool lost = std::ranges::any_of(members, is_lost);
      if (!lost && !member_died(worker)) return;  // it blocks
    }
    if (board.generation <= worker.generation) return;
    if (board.plan.has(id)) {
      worker.generation = board.generation;
      worker.state = State::kMeeting;
    } else if (worker.generation > 0) {
      sim_.workers.end(worker.process, ExitStatus{143, 0});
    }
  }

  void meet() {
    std::map<std::string, uint64_t> training;  // by job
    for (const auto& [group, members] : plans_) {
      if (!whole(group, true)) continue;
      for (const std::string& id : members) {
        Worker& worker = workers_.at(id);
        if (worker.state == State::kTraining) continue;
        report(id, worker, State::kTraining, "training");
        ++groups_of[id];
      }
      if (training.empty()) members_now = {members.begin(), members.end()};
      const auto [other, only] = training.emplace(group);
      if (!only) add_broken(fmt::format("generations {} and {} train at once", other->second, group.second));
      newest_training = group.second;
    }
    if (training.empty()) members_now.clear();
  }

  // Where nobody of an older group is left, a new one counts from 1 again.
  void learn(const Group& group, const std::vector<std::string>& members) {
    const auto known = plans_.emplace(group, members);
    if (known.first->second == members) return;
    const bool lives = std::ranges::any_of(known.first->second, [&](const std::string& id) {
      const auto it = workers_.find(id);
      return it != workers_.end() && it->second.alive;
    });
    if (lives) add_broken(fmt::format("two plans of generation {}", group.second));
    known.first->second = members;
    done_.erase(group);
  }

  void add_broken(std::string what) {
    if (broken.size() < 5) broken.push_back(fmt::format("{}: {}", format_duration(sim_.now() - Instant{}), what));
  }

  Simulation& sim_;
  uint64_t boards_made_ = 0;
  std::shared_ptr<std::map<std::string, Board*>> boards_ = std::make_shared<std::map<std::string, Board*>>();
  std::map<std::string, Worker> workers_;  // all that ever were, by name
  std::map<Group, std::vector<std::string>> plans_;
  std::set<Group> done_;
};

// What the processes of workers with the library do; the rest is LibraryModel's.
inline WorkerModel with_library() {
  WorkerModel model;
  model.start_delay = 500ms;
  model.runs = std::nullopt;
  model.talks = false;  // its model does
  model.sigterm_status = ExitStatus{143, 0};
  return model;
}

}  // namespace rubato::sim
