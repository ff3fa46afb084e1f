// SimNetwork: the network between all machines of a simulation: who reaches whom, and how late.
//
// What each program sees is ProgramNetwork (program_network.h); one connection is a Link (link.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/local_clock.h"
#include "sim/simulator.h"

namespace rubato::sim {

using NodeId = int;  // 0 is the store, machines follow from 1

// Every way in which the network may misbehave; change them at any time.
struct NetworkFaults {
  Duration latency_min = 50us;
  Duration latency_max = 2ms;       // most messages are near the minimum: the share of the span is u⁴
  Duration latency_local = 20us;    // between programs of one machine
  double loss = 0;                  // chance that a message is lost and sent again
  Duration retransmit_min = 200ms;  // Linux's TCP_RTO_MIN; doubles with each loss of the same message
  Duration retransmit_max = 1s;     // how late, at most, TCP notices that a cut has healed
  double stall = 0;                 // chance that a message (and all behind it) is late by up to stall_max
  Duration stall_max = 1s;
  double silence_jitter = 0.25;  // a silent connection ends after silence_max × [1, 1 + this): keep-alive phase
  Duration syn_retry = 1s;       // Linux's TCP_TIMEOUT_INIT; doubles
};

class Link;
class SimListener;

// What the network knows of one machine. SimMachine changes it and then calls SimNetwork::changed().
struct Node {
  NodeId id = 0;
  std::string name;
  std::string address;
  bool up = true;
  bool frozen = false;                     // hears nothing, answers nothing, but will
  LocalLoop* kernel = nullptr;             // the timers of its kernel; null for the store
  std::map<uint16_t, SimListener*> ports;  // in use; null: leased, or bound by a worker
  uint16_t next_port = 32768;

  bool answers() const { return up && !frozen; }
  uint16_t free_port();                              // throws kConflict when there is none
  void take_port(uint16_t port, SimListener* user);  // throws kConflict when it is taken
};

class SimNetwork {
 public:
  explicit SimNetwork(Simulator& simulator);
  ~SimNetwork();

  NetworkFaults faults;

  Node& add_node(std::string name);  // "10.x.y.z" from its number
  Node& node(NodeId id) { return *nodes_.at(static_cast<size_t>(id)); }
  // A host name or an address, as seen from a machine ("localhost"). Null: no such name.
  Node* resolve(const std::string& host, NodeId from);

  // Cuts: messages of `from` do not reach `to`. They stack: a path is open when no cut blocks it. A machine always
  // reaches itself.
  using CutId = uint64_t;
  enum class Direction { kBoth, kOneWay };
  CutId cut(const std::vector<NodeId>& from, const std::vector<NodeId>& to, Direction direction = Direction::kBoth);
  CutId isolate(NodeId id);  // from every other node there is, the store included
  void heal(CutId id);
  void heal();  // every cut

  bool open(NodeId from, NodeId to) const;         // no cut blocks it
  bool deliverable(NodeId from, NodeId to) const;  // and the receiver's kernel is there to take it
  bool round_trip(NodeId a, NodeId b) const;       // and an acknowledgement comes back

  // How long a message takes now: seeded, with the losses and stalls of `faults`.
  Duration latency(NodeId from, NodeId to);
  Duration random_up_to(Duration most);

  // After a cut: connections and subscribers adapt.
  void changed();
  // After a node's `up` or `frozen` changed.
  void changed(NodeId id);
  void on_change(std::function<void()> call) { subscribers_.push_back(std::move(call)); }

  // Power off: that end of each of its connections is gone without a word.
  void lose_node(NodeId id);

  Simulator& simulator() { return simulator_; }
  size_t connections() const { return links_.size(); }

 private:
  friend class Link;
  struct Cut {
    std::vector<bool> from, to;
    bool both = true;
  };
  std::vector<bool> members(const std::vector<NodeId>& ids) const;
  CutId add_cut(Cut cut, NodeId first);
  void adopt(std::shared_ptr<Link> link, uint64_t id);
  void forget(uint64_t id);

  Simulator& simulator_;
  Random random_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::string, NodeId, std::less<>> names_;
  std::map<CutId, Cut> cuts_;
  CutId next_cut_ = 1;
  uint64_t next_link_ = 1;
  std::map<uint64_t, std::shared_ptr<Link>> links_;
  std::map<NodeId, std::set<uint64_t>> links_of_;  // by either end: thousands of other machines are not looked at
  std::vector<std::function<void()>> subscribers_;
};

}  // namespace rubato::sim
