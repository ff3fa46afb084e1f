// Board: the free room of a cluster while a decision is being made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/state.h"

namespace rubato::policy {

class Board {
 public:
  // Usable nodes with what is free on them. `with_leaving`: as if workers that are being stopped were gone already.
  explicit Board(const cluster::State& state, bool with_leaving = false);

  // Takes room for `count` workers, few nodes first: the tightest node that holds all, else the roomiest and so on.
  // All or nothing; `seats` are the ones that it adds to, nodes that it has are preferred.
  bool take(const Resources& each, int count, const std::set<NodeId>& shunned, std::vector<cluster::Seat>& seats);
  // As many as there is room for, up to `count`. Returns how many.
  int take_some(const Resources& each, int count, const std::set<NodeId>& shunned, std::vector<cluster::Seat>& seats);
  // Takes one worker off the last seat that has room to give.
  void give_back_last(const Resources& each, std::vector<cluster::Seat>& seats);
  void give_back(const Resources& each, const std::vector<cluster::Seat>& seats);
  // Takes these seats as far as there is room for them; returns whether all of them.
  bool occupy(const Resources& each, const std::vector<cluster::Seat>& seats);

  // How many workers of this size fit in all.
  int64_t capacity(const Resources& each);
  int64_t capacity(const Resources& each, const std::set<NodeId>& shunned);

 private:
  // Nodes with room are numbered in the order of their ids; most nodes of a large cluster have none, and are not here
  // until somebody gives some back. Resources are numbered too, so that nothing is allocated for a node.
  struct Shape {
    std::vector<std::pair<size_t, int64_t>> needs;     // by number of the resource
    bool possible = true;                              // some node has each of them
    std::vector<int64_t> fits;                         // by node: how many workers of this size
    std::map<int64_t, std::vector<uint32_t>> by_fits;  // above zero; nodes in order
    int64_t capacity = 0;
  };
  Shape& shape(const Resources& each);
  int64_t fits_on(const Shape& shape, uint32_t node) const;
  std::optional<uint32_t> number_of(const NodeId& node) const;  // nullopt: it has no room
  std::optional<uint32_t> admit(const NodeId& node);            // nullopt: it is not usable
  uint32_t append(const NodeId& node);
  bool precedes(uint32_t a, uint32_t b) const { return std::max(a, b) < in_order_ ? a < b : id_of(a) < id_of(b); }
  std::vector<uint32_t>::iterator place_in(std::vector<uint32_t>& bucket, uint32_t node) const;
  const NodeId& id_of(uint32_t node) const { return *nodes_[node]; }
  void change(uint32_t node, const Resources& amount, bool taking);
  void give_back(const NodeId& node, const Resources& amount);
  void seat(const NodeId& node, int count, std::vector<cluster::Seat>& seats) const;
  int64_t& room(uint32_t node, size_t resource) { return free_[node * names_.size() + resource]; }

  const cluster::State& state_;
  std::vector<std::string> names_;
  std::vector<const NodeId*> nodes_;
  size_t in_order_ = 0;              // so many of them, from the first
  std::map<NodeId, uint32_t> late_;  // the others
  std::vector<int64_t> free_;
  std::map<Resources, Shape> shapes_;
};

}  // namespace rubato::policy
