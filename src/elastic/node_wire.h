// What a cluster's head and its nodes' agents say to each other over the one connection that an agent keeps.
//
// Both directions are level-triggered: the head sends all that a node should be running, the agent all that it runs.
// Nothing has to be remembered about what was said on an earlier connection or by an earlier head.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "elastic/checkpoints.h"
#include "elastic/lease.h"
#include "elastic/member.h"
#include "elastic/restart.h"
#include "elastic/view.h"
#include "model/ids.h"
#include "model/job_profile.h"
#include "model/job_spec.h"

namespace rubato::elastic {

inline constexpr int kNodeProtocol = 1;

// ---- head to agent ----

// The workers of a generation on one node, for their own supervisor.
struct PeerSeat {
  std::string address;
  int workers = 0;
  bool operator==(const PeerSeat&) const = default;
};

// An agent of a generation, which vouches for the others of it (lease.h).
struct WitnessAddress {
  AgentId agent;
  std::string address;
  uint16_t port = 0;  // 0: it cannot be asked
  bool operator==(const WitnessAddress&) const = default;
};

// One job's part on one node.
struct JobOrder {
  JobId job;
  Generation generation = 0;
  // kGathering: stop the workers of older generations (SIGTERM, `grace`, SIGKILL), then report kReady with a free port.
  // kRunning:   run `workers` workers with these places.
  // kEnded:     stop the workers of any generation, then report kGone. An agent forgets a job that it is not told of.
  Phase phase = Phase::kGathering;
  int workers = 0;
  Duration grace = 30s;
  // kRunning
  Assignment place;
  std::string master_addr;
  uint16_t master_port = 0;
  int restarts_used = 0;
  std::vector<PeerSeat> peers;     // kRunning: all nodes of the generation, by rank; none when they are very many
  Duration lease = kDefaultLease;  // kRunning: how long they may go on without the head
  std::vector<WitnessAddress> witnesses;  // kRunning: of this generation; none: the node is alone in it
  // Workers that live on from one generation to the next (docs/fault-tolerance.md, "Changing in place").
  // kGathering, kEnded: those of this generation go on until the next plan comes, and new ones are started beside them;
  // 0: none do. `lease` and `witnesses` are then of that generation.
  Generation kept = 0;
  std::optional<GroupPlan> plan;  // kRunning: who is in the group; kEnded: the group that its workers leave
  JobSpec spec;
  std::string output;  // folder for $RUBATO_OUTPUT, shared by the nodes that see the head's disk
  // That the head has. Those of earlier generations are in this node's checkpoint folder before its workers start.
  std::vector<CheckpointItem> checkpoints;
  bool more_checkpoints = false;  // a node brings copies to a head that lost its own: wait for the next order
  std::string checkpoint_folder;  // for $RUBATO_CHECKPOINT; of the node, which sets it
};

// What the lease of its workers is counted by, as long as they live.
struct LeaseTerms {
  RoundId round;
  Duration lease = kDefaultLease;
  std::vector<WitnessAddress> witnesses;
};
LeaseTerms lease_terms(const JobOrder& job_order);

// A job's output that this node has on its own disk, of a job that has no workers here now.
struct OutputOrder {
  JobId job;
  bool wanted = false;  // deliver it; else it is kept, for the job may come back
  bool operator==(const OutputOrder&) const = default;
};

struct Orders {  // everything this node should do now
  uint64_t revision = 0;
  std::vector<JobOrder> job_orders;
  // An agent forgets an output that is neither in here nor in `job_orders`.
  std::vector<OutputOrder> outputs;
  std::vector<CheckpointCopy> copies;  // hold these, and no others
  std::vector<AgentId> fence;          // agents that were given up: do not vouch for them
  bool drain = false;                  // the node goes away: finish what is here, then exit when told by Goodbye
  std::optional<Duration> drain_in;    // with `drain`: no worker may live any more so long after this was sent
  bool more = false;  // the rest comes in the next message, with the same revision: these were too many for one
};

struct Welcome {
  int protocol = kNodeProtocol;
  uint64_t head_epoch = 0;  // counts heads; an agent refuses an older one
  Duration heartbeat = 3s;  // it beats six times as often
  // Workers end when the head is not heard for too long. Not where the head can end this agent whatever happens.
  bool leased = false;
  // No other machine can have the next head: when nothing listens here, there is none.
  bool stays_here = false;
};

// Answer to LeaseAsk, from the head or from a witness.
struct LeaseAnswer {
  enum class Word {
    kGoOn,
    kNotKnown,  // neither this nor that: as no answer
    kGivenUp,   // the next generation starts, or has: end your workers now
  };
  Word word = Word::kNotKnown;
  int64_t sent_us = 0;          // as asked
  AgentId agent;                // who answers; empty: the head
  std::vector<RoundId> rounds;  // of a witness, kGoOn: for these it vouches
};

struct LogAck {  // lines of this job up to this sequence number are in the head's log
  JobId job;
  uint64_t sequence = 0;
  // The head could not write the ones after it: they stay at the node, which sends them again after a pause.
  bool refused = false;
};

struct PackagePart {  // answer to PackageWanted; sent as a JSON header, a newline, and the raw bytes
  std::string hash;
  uint64_t offset = 0;
  uint64_t size = 0;  // of the whole package
  std::string bytes;
};

// Answer to OutputOffer and to each OutputPart: how much of it is here.
struct OutputAck {
  enum class State {
    kMore,     // go on from `have`
    kKept,     // it is durable here, or nobody wants it (any more): it may be forgotten
    kRefused,  // not now, and why
  };
  JobId job;
  uint64_t have = 0;
  State state = State::kMore;
  std::string reason;
};

struct Goodbye {  // stop the workers, exit. `refused`: why this agent may not be part of the cluster
  std::string reason;
  bool refused = false;
};

// ---- agent to head ----

enum class JobOrderState {
  kPreparing,  // older workers are being stopped, or the package fetched
  kReady,      // no worker of an older generation is alive; `port` is free here
  kRunning,
  kSucceeded,  // all workers of this generation ended with 0, by themselves
  kFailed,     // at least one ended badly, all have ended
  kGone,       // kEnded was asked for, and nothing is left
};
std::string_view to_string(JobOrderState state);

struct JobOrderReport {
  JobId job;
  Generation generation = 0;
  JobOrderState state = JobOrderState::kPreparing;
  uint16_t port = 0;                // kReady
  // kFailed; also in another state where `in_place` says that others go on.
  std::vector<Failure> failures;
  std::string problem;              // what keeps it from being ready, for people (package does not unpack, ...)
  std::vector<std::string> forced;  // workers of the older generation that had to be killed after the grace
  // The last generation that ran here, if all its workers ended with 0 before anybody told them to; else 0. It is said
  // at once and whatever was asked for meanwhile, so that they are not run again; while the state is still kRunning or
  // kPreparing, their last lines are on the way.
  Generation succeeded = 0;
  std::optional<InPlaceReport> in_place;  // none: its workers cannot change in place, or nobody has asked
  bool fenced = false;  // kFailed: this node ended them, as it had lost its head for too long
  bool operator==(const JobOrderReport&) const;
};

struct Hello {
  int protocol = kNodeProtocol;
  std::string version;
  NodeId node;
  AgentId agent;
  MemberInfo info;      // host, machine, addresses
  Resources resources;  // what the node offers
  // When the agent was started. Of two that come for one node, the older one is about to end, whoever is heard first.
  WallTime started{};
  uint64_t head_epoch = 0;  // the newest head it has obeyed
  bool own_disk = false;    // outputs of jobs are not on the head's disk: they are delivered
  std::vector<JobOrderReport> job_orders;
  std::vector<AgentId> fenced;  // as in Reports
};

// Instead of Hello on a connection of its own, again and again, to the head and to other agents: may my workers go on?
// Nothing waits before it, as beats do behind lines.
struct LeaseAsk {
  int protocol = kNodeProtocol;
  NodeId node;
  AgentId agent;
  uint64_t head_epoch = 0;      // the newest head it has obeyed
  int64_t sent_us = 0;          // by its own clock
  bool stopped = false;         // it was given up, and none of its workers is alive
  std::vector<RoundId> rounds;  // that it is to run; for witnesses
};

// Instead of Hello on a connection of its own, which brings what workers of this node have left: lines of a dead
// agent, outputs. Answered with Welcome; nothing is ordered on it. An agent's beats do not wait behind its bytes.
struct Delivery {
  // Each has a connection of its own: a worker that waits for its checkpoint does not wait behind others' bytes.
  enum class Purpose { kOutputs, kCheckpoints, kFetch };
  int protocol = kNodeProtocol;
  NodeId node;
  Purpose purpose = Purpose::kOutputs;
};

struct OutputOffer {  // the output of this job can be had, or a checkpoint of it
  JobId job;
  // With its hash: it is held here, as a copy or because it was written here.
  std::optional<CheckpointItem> checkpoint = {};
};

// The output's folder as a tar.zst, bit by bit; sent as a JSON header, a newline, and the raw bytes.
struct OutputPart {
  JobId job;
  uint64_t offset = 0;
  bool last = false;
  std::string hash;            // last: sha256 of the whole
  uint64_t files = 0;          // last
  uint64_t content_bytes = 0;  // last: unpacked
  std::string bytes;
  std::optional<CheckpointItem> checkpoint = {};  // as offered; none: of the output
};

struct OutputTrouble {  // it cannot be sent
  JobId job;
  std::string reason;
};

struct DeliveryEnd {};  // that was all this node had. Answered with Goodbye

struct NodeBeat {
  uint64_t orders = 0;  // the revision that it has acted on
};

struct Reports {  // all job orders, whenever one has changed
  std::vector<JobOrderReport> job_orders;
  std::vector<AgentId> fenced;  // of Orders::fence: those who cannot go on by a word of this agent
};

struct LogLine {
  uint64_t sequence = 0;  // per job and agent: 1, 2, 3, ...
  int64_t time_us = 0;    // wall clock of the node
  Generation generation = 0;
  int rank = 0;
  bool is_stderr = false;
  std::string text;        // without the newline; at most 64 KiB
  bool continues = false;  // this output's next line belongs to the same line: it was longer than that
  // Not 0: this line stands for so many that the disk had no room for, and their bytes.
  uint64_t missing_lines = 0;
  uint64_t missing_bytes = 0;
};
struct LogLines {
  JobId job;
  std::vector<LogLine> lines;
  // Who has numbered them; empty: the agent of this connection. A spool outlives its agent.
  AgentId agent = {};
  // The last line that was sent before these on this connection, since the last refusal; 0: none. A head that does not
  // have it takes none of these either: a log has no holes.
  uint64_t follows = 0;
};

// What a job's workers have told of it, by AdaptDL's protocol.
struct JobHints {
  JobId job;
  JobProfile profile;
};

struct PackageWanted {
  std::string hash;
  uint64_t offset = 0;
  JobId checkpoint_of = {};  // not empty: a checkpoint of this job; on a Delivery's connection
};

struct Leaving {  // this machine goes away by then (spot notice, SIGTERM): stop sending work here
  std::string reason;
  Duration in = 0s;
  // `in` is known, and a promise: none of its workers lives so long after this was sent, whatever happens.
  bool ends = false;
};

using ToAgent = std::variant<Welcome, Orders, LogAck, PackagePart, OutputAck, Goodbye, LeaseAnswer>;
using ToHead = std::variant<Hello, NodeBeat, Reports, LogLines, PackageWanted, Leaving, Delivery, OutputOffer,
                            OutputPart, OutputTrouble, DeliveryEnd, LeaseAsk, JobHints>;

// `now` is the sender's clock, or the receiver's: the times of failures travel as ages.
std::string encode(const ToAgent& message);
std::string encode(const ToHead& message, Instant now = {});
// In as many messages as it takes for each to stay well below what an agent reads at once.
std::vector<std::string> encode_orders(Orders orders);
// Throw Error for anything that is not such a message.
ToAgent decode_to_agent(std::string_view text);
ToHead decode_to_head(std::string_view text, Instant now = {});

// Bounds that both sides keep to; a message beyond them is refused.
inline constexpr size_t kNodeMessageMax = size_t{8} << 20;
inline constexpr size_t kPackagePartMax = size_t{4} << 20;
inline constexpr size_t kOutputPartMax = size_t{2} << 20;
inline constexpr size_t kOutputsMax = 65536;  // on one node
inline constexpr size_t kCopiesMax = 4096;    // of others' checkpoints, on one node
inline constexpr size_t kLogTextMax = size_t{64} << 10;
inline constexpr size_t kLogLinesMax = 4096;    // in one message
inline constexpr size_t kJobOrdersMax = 4096;     // on one node
inline constexpr size_t kPeersMax = 256;        // nodes of a job that know all the others of it
inline constexpr int kOrderWorkersMax = 4096;  // of one job on one node
inline constexpr size_t kFenceMax = 20'000;     // agents that were given up, for one node

}  // namespace rubato::elastic
