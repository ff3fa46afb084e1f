// Rendezvous: the state machine of one group of agents. Pure: events and the time come in, views come out.
//
//            start / takeover
//                  |
//                  v        (1) all agents idle, enough of them, last call over
//     +------> GATHERING g ----------------------------------> RUNNING g
//     |            |                                             |   |
//     |            | (4) too few for join_timeout,               |   | (3) all workers ended well
//     |            |     restart budget used up                  |   v
//     |            +-------------------> ENDED <-----------------|--+
//     |                                                          |
//     +----------------------------------------------------------+
//        (2) g+1: a worker failed, an agent was lost, left, or joined while there was room
//
// Where workers can change in place, they live on through (2) and (1): their agents answer with them, and the next
// generation is made of them (group_plan.h). An agent that joins is then no reason for (2): its workers are started
// beside (`prepare`), and are the reason when they wait for a plan.
//
// A generation number is RUNNING at most once, and only after every agent of the older one has said that its workers
// are gone, or was given up after it must have stopped them itself (fence_after). Whether a failure costs a restart is
// decided at (1), when each agent has answered: if one was lost meanwhile, its loss was the cause and costs nothing.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/quorum.h"
#include "elastic/round.h"
#include "elastic/view.h"

namespace rubato::elastic {

enum class Loss {
  kDead,    // its kernel says that it is gone
  kClosed,  // its end of the connection is closed
  kSilent,  // it may live behind a broken network
};

// Something worth a line in the log.
struct Note {
  enum class Kind { kJoined, kLost, kLeft, kGathering, kRunning, kEnded };
  Kind kind;
  MemberInfo member;  // kJoined, kLost, kLeft
  Generation generation = 0;
  std::string reason;
};

class Rendezvous {
 public:
  // A new group.
  Rendezvous(const Terms& terms, Instant now);

  // A group whose host is gone. `dead` are agents known to be dead. The new host joins like everybody else; the round
  // forms only with a quorum of the last one (unless the terms need none). Agents that neither came nor are known to be
  // dead are waited for until they have surely stopped their workers:
  //   the lost host  counts silence from the same beats as we do, so it has fenced soon after we gave it up;
  //   another agent  may have been in touch with that host until now, and fences fence_after() later.
  Rendezvous(const Legacy& legacy, const LostHost& host, Dead dead, Instant now);

  // nullopt: admitted (a member that comes back keeps its place). Else the reason for the refusal.
  std::optional<std::string> join(const MemberInfo& info, const Claim& claim, Instant now);

  // `proof`: it knows that this host heard it then, or later; no time if it knows of none.
  void heard(const AgentId& id, std::optional<Instant> proof, Instant now);
  // Its workers are gone, or never were; `port` is free there for the master of this generation.
  // Or they can change in place, and are among `workers`.
  void ready(const AgentId& id, Generation generation, uint16_t port, Instant now, const AgentWorkers& workers = {});
  // `in_group` is false for workers that were in no plan yet.
  void failed(const AgentId& id, Generation generation, const std::vector<Failure>& failures, Instant now,
              bool in_group = true);
  // Its workers of this generation train: they can change in place.
  void settled(const AgentId& id, Generation generation, Instant now);
  // Its workers that are in no plan wait for one.
  void offered(const AgentId& id, Generation generation, Instant now);
  // The group of that generation failed in a worker that lives.
  void broken(const AgentId& id, Generation generation, const std::string& reason, Instant now);
  void succeeded(const AgentId& id, Generation generation, Instant now);
  void leaving(const AgentId& id, const std::string& reason, Instant now);
  // The agent of this host leaves, its workers are gone, and nobody hosts here any more: its last view says so.
  void retire(const AgentId& id, const std::string& reason, Instant now);
  // That agent, who need not be here, has seen a real host of this epoch. If it is of our last round, the group went on
  // without this host, which must step down. Of others (what is left of an older group) it means nothing.
  void saw_host(const AgentId& id, uint64_t epoch);
  // Its connection ended. It is lost if it does not come back within a moment. That it closed the connection does not
  // prove that it is dead: it may have given this host up.
  void disconnected(const AgentId& id, Loss how, Instant now);
  // The kernel of its machine says that nothing listens at its doorway: it is dead. `in_round` is for agents that this
  // host has never seen (after a takeover).
  void declare_dead(const AgentId& id, bool in_round, Instant now);
  // This host stood still until now, and heard nobody: their silence counts from now on. That time still counts against
  // the host's own right to go on, unless all live on one machine: there, whoever went on without it has closed its
  // connection by now.
  void stood_still(Instant now);
  void tick(Instant now);

  // When tick() has something to do.
  Instant next_tick(Instant now) const;

  // Goes up when agents must act (phase, generation); they hear of it at once.
  uint64_t revision() const { return revision_; }
  // Goes up when what they know has changed (who is there, what is waited for); they may hear of it a little later.
  uint64_t details() const { return details_; }
  View common_view() const;                               // all that is the same for everybody
  void personalise(View& view, const AgentId& id) const;  // and that agent's own place
  bool has(const AgentId& id) const { return members_.contains(id); }
  struct Doorway {
    std::string address;
    uint16_t port = 0;
  };
  std::optional<Doorway> doorway(const AgentId& id) const;  // where others reach that agent
  uint64_t seniority(const AgentId& id) const;              // of a member; the lowest possible for others
  bool in_round(const AgentId& id) const;                   // of the last round, or before the first: in the group
  std::vector<AgentId> member_ids() const;

  Phase phase() const { return phase_; }
  Generation generation() const { return generation_; }
  uint64_t epoch() const { return epoch_; }
  // An agent came that has seen a newer host: this one must step down.
  bool superseded() const { return superseded_; }
  bool retired() const { return retired_; }
  bool incumbent() const { return incumbent_; }  // it has formed a round, or is the first host
  bool provisional() const { return !quorum_holds(); }
  // Every agent that was here at `since`, spares too, is in touch, or has left or died for sure.
  bool all_in_touch(Instant since) const;
  Legacy legacy() const;
  // Agents of the last round that were lost and may live elsewhere: worth asking after.
  const std::vector<Successor>& missing() const { return missing_; }
  std::vector<Note> take_notes() { return std::exchange(notes_, {}); }

 private:
  struct Member {
    MemberInfo info;
    uint64_t seniority = 0;
    Instant heard{};  // its last word
    Instant proof{};  // it knows that it was heard then, or later: it fences fence_after() that
    std::optional<Instant> disconnected;
    std::optional<Generation> ready_for;
    uint16_t master_port = 0;
    Generation round = 0;  // the last round it was in
    Generation done = 0;   // the last round that it ended well
    bool leaving = false;
    bool veteran = false;  // it was in the group before this host was
    Assignment place;
    AgentWorkers workers;  // of its last answer
    bool settled = false;  // its workers in the plan can change in place
  };

  void gather(const std::string& reason, Instant now);
  void try_form(Instant now);
  std::string unanswered(Instant now) const;  // which agents must still answer before anything can be decided
  bool settle_failure(Instant now);           // false: the job has ended
  std::string obstacle(Instant now) const;    // why no round can form of those who are there; empty: it can
  void admit(const MemberInfo& info, const Claim& claim, Instant now);
  void adopt_round(const Claim& claim);  // of which this host has not heard
  void resume(Member& member, const MemberInfo& info, const Claim& claim, Instant now);
  int alive() const;  // members that count for the quorum
  void form(Instant now);
  bool any_veteran() const;         // a worker with the job's state lives; rendezvous_plan.cc, as all until charge()
  bool any_finished() const;        // some worker has ended well
  std::string why_restart() const;  // workers live, but cannot be planned; empty: they can
  bool settled_group() const;       // the running group can change in place
  void restart_instead(const std::string& reason);
  Intake intake() const;
  void update_prepared();                  // agents hear of it when they may start workers
  bool prepares(const AgentId& id) const;  // and this one may
  void note_failure();
  bool charge(const std::string& cause, Duration uptime, Instant now);  // false: the job has ended
  void end(bool succeeded, const std::string& reason);
  void end_if_all_done();
  void drop(const AgentId& id);  // it left, or is known to be dead
  // Why an agent that comes with this identity is not let in: it was replaced itself.
  std::optional<std::string> why_replaced(const MemberInfo& info, const Claim& claim) const;
  void replace_former(const MemberInfo& info, Instant now);  // agents of that identity are dead
  void lose(const AgentId& id, Loss how, const std::string& reason, Instant now);
  // Agents of the last round that are dead, so that nobody can count on them. Not those who died out of our sight while
  // somebody may live there: before, they may have helped the others to go on without us.
  int dead_count() const;
  bool anybody_elsewhere() const;  // an agent of this group, in the round or not, is neither here nor known to be dead
  bool quorum_holds() const;
  std::vector<Successor> successors() const;
  std::vector<Successor> worth_asking_after() const;  // agents of the last round that are no successors
  bool spans_machines() const;
  std::vector<const Member*> candidates(int spares = 0) const;  // in rank order, leaving ones left out
  int usable(size_t agents) const;                              // so many of them can form a round
  void note(Note::Kind kind, const std::string& reason, const MemberInfo* member = nullptr);

  Terms terms_;
  uint64_t epoch_ = 1;
  Generation generation_ = 1;
  Generation round_ = 0;
  int round_size_ = 0;
  int legacy_spares_ = 0;  // of the host before
  bool incumbent_ = true;
  uint64_t next_seniority_ = 1;
  Restarts restarts_;

  Phase phase_ = Phase::kGathering;
  std::string reason_;
  std::map<AgentId, Member> members_;
  Dead dead_;
  std::set<AgentId> round_ids_;  // the agents of the last round: all if this host formed it, else those it knows
  bool losing_several_ = false;

  Instant gathering_since_{};
  Instant last_join_{};
  Instant running_since_{};
  Instant not_before_{};  // back-off
  LostHost lost_host_;
  Instant host_fenced_{};       // after a takeover: when the lost host's workers are surely gone,
  Instant everybody_fenced_{};  // and those of every agent that has not come
  Instant in_sight_until_{};    // and until when the lost host would have told us of whoever left it
  std::vector<Successor> missing_;
  Instant last_missing_{};           // when an agent was last lost that may live on elsewhere
  bool round_failed_ = false;        // the last round had a failure, charged or not: it has not ended well
  bool unexplained_stop_ = false;    // an agent came back without its workers and has not said why
  bool finishing_ = false;           // an agent has ended the running round: nobody is admitted any more
  std::vector<std::string> causes_;  // what each restart was spent on, the last few

  Round formed_;                        // the last round, if this host formed it
  std::vector<std::string> departing_;  // workers of agents that leave in peace
  bool restart_ = false;                // this gathering is not in place
  bool preparing_ = false;              // as agents were told
  Instant break_until_{};

  bool succeeded_ = false;
  bool superseded_ = false;
  bool retired_ = false;
  uint64_t revision_ = 1;
  uint64_t details_ = 1;
  Instant now_{};  // of the last event
  std::vector<Note> notes_;
};

// A connection that breaks while both processes live is made anew within this time, and nothing happens.
inline constexpr Duration kReconnectWindow = 200ms;
inline constexpr size_t kMembersMax = 20'000;
inline constexpr size_t kSuccessorsMax = 8;
// Where agents have identities, as many are named: only of those who are can a newcomer prove that they are dead.
inline constexpr size_t kIdentitiesMax = 64;

}  // namespace rubato::elastic
