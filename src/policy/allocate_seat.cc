// Where the replicas sit, once their numbers are known.
#include <algorithm>
#include <queue>
#include <set>

#include "core/error.h"
#include "policy/allocate_work.h"

namespace rubato::policy {
namespace {

class Seating {
 public:
  Seating(Allocating& all, SeatRoom& room) : all_(all), room_(room), holders_(room.size()) {}

  void run() {
    keep_unchanged();
    for (size_t at = 0; at < all_.jobs.size(); ++at) {
      const JobWork& work = all_.jobs[at];
      if (work.chosen >= 0 && work.given.empty()) pending_.push({size_of(work), at});
    }
    while (!pending_.empty()) {
      const size_t at = pending_.top().job;
      pending_.pop();
      seat(at);
    }
  }

 private:
  // Largest first, then the oldest.
  struct Pending {
    int size = 0;
    size_t job = 0;
    bool operator<(const Pending& other) const { return size != other.size ? size < other.size : job > other.job; }
  };

  static const SizeOption& chosen(const JobWork& work) { return work.options[static_cast<size_t>(work.chosen)]; }
  static int size_of(const JobWork& work) { return chosen(work).replicas; }
  const std::vector<size_t>& nodes_of(const JobWork& work) const {
    return all_.nodes_of[static_cast<size_t>(chosen(work).kind)];
  }
  // Of one node at most.
  int node_cap(const JobWork& work) const {
    return all_.shapes.at(work.need)[static_cast<size_t>(chosen(work).kind)].caps.front();
  }
  static bool had(const JobWork& work, size_t node) {
    return std::find(work.seats.begin(), work.seats.end(), node) != work.seats.end();
  }

  void give(size_t at, size_t node, int count) {
    JobWork& work = all_.jobs[at];
    room_.take(node, work.need, count);
    work.given.insert(work.given.end(), static_cast<size_t>(count), node);
    holders_[node].insert(at);
  }

  void take_away(size_t at) {
    JobWork& work = all_.jobs[at];
    for (const size_t node : work.given) {
      room_.give_back(node, work.need, 1);
      holders_[node].erase(at);
    }
    work.given.clear();
  }

  void keep_unchanged() {
    for (size_t at = 0; at < all_.jobs.size(); ++at) {
      JobWork& work = all_.jobs[at];
      if (work.pinned || work.chosen < 0) continue;
      const SizeOption& option = chosen(work);
      if (option.kind != work.current_kind || option.replicas != work.current) continue;
      bool fits = true;
      for (const size_t node : work.seats) {
        fits = room_.fits(node, work.need, 1) > 0;
        if (!fits) break;
        give(at, node, 1);
      }
      if (!fits) take_away(at);
    }
  }

  // Tries its size, then the smaller ones, until one has room.
  void seat(size_t at) {
    JobWork& work = all_.jobs[at];
    while (work.chosen >= 0 && !try_seat(at)) {
      int smaller = -1;
      for (size_t which = 0; which < work.options.size(); ++which) {
        const SizeOption& option = work.options[which];
        if (option.replicas >= size_of(work) && option.kind == chosen(work).kind) continue;
        if (option.value >= chosen(work).value) continue;
        if (smaller < 0 || option.value > work.options[static_cast<size_t>(smaller)].value)
          smaller = static_cast<int>(which);
      }
      work.chosen = smaller;
    }
  }

  bool try_seat(size_t at) {
    JobWork& work = all_.jobs[at];
    if (size_of(work) > node_cap(work)) return seat_distributed(at);
    return seat_on_one(at) || make_room_on_one(at) || seat_anywhere(at);
  }

  bool seat_on_one(size_t at) {
    const JobWork& work = all_.jobs[at];
    const int size = size_of(work);
    std::optional<size_t> best;
    int best_left = 0;
    bool best_had = false;
    for (const size_t node : nodes_of(work)) {
      const int fits = room_.fits(node, work.need, size + node_cap(work));
      if (fits < size) continue;
      const int left = fits - size;
      const bool mine = had(work, node);
      if (!best || left < best_left || (left == best_left && mine && !best_had)) {
        best = node;
        best_left = left;
        best_had = mine;
      }
    }
    if (!best) return false;
    give(at, *best, size);
    return true;
  }

  // Moves smaller jobs away from one node: the node where fewest replicas have to move.
  bool make_room_on_one(size_t at) {
    const JobWork& work = all_.jobs[at];
    const int size = size_of(work);
    std::vector<size_t> moved;
    int fewest = 0;
    std::optional<size_t> best;
    for (const size_t node : nodes_of(work)) {
      std::vector<size_t> candidates;
      for (const size_t other : holders_[node]) {
        const JobWork& held = all_.jobs[other];
        if (!held.pinned && held.given.size() < static_cast<size_t>(size) && only_on(held, node))
          candidates.push_back(other);
      }
      std::sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
        const size_t one = all_.jobs[a].given.size(), two = all_.jobs[b].given.size();
        return one != two ? one < two : a < b;
      });
      int replicas = 0;
      std::vector<size_t> go;
      std::vector<std::pair<size_t, int>> back;
      while (room_.fits(node, work.need, size) < size && go.size() < candidates.size()) {
        const size_t other = candidates[go.size()];
        const int count = static_cast<int>(all_.jobs[other].given.size());
        room_.give_back(node, all_.jobs[other].need, count);
        back.emplace_back(other, count);
        replicas += count;
        go.push_back(other);
      }
      const bool enough = room_.fits(node, work.need, size) >= size;
      for (const auto& [other, count] : back) room_.take(node, all_.jobs[other].need, count);
      if (enough && (!best || replicas < fewest)) {
        best = node;
        fewest = replicas;
        moved = go;
      }
    }
    if (!best) return false;
    for (const size_t other : moved) send_away(other);
    give(at, *best, size);
    return true;
  }

  static bool only_on(const JobWork& work, size_t node) {
    return std::all_of(work.given.begin(), work.given.end(), [&](size_t one) { return one == node; });
  }

  void send_away(size_t at) {
    take_away(at);
    pending_.push({size_of(all_.jobs[at]), at});
  }

  // Whole nodes: free ones, its own before others; then those that hold only jobs of one node, fewest replicas first.
  bool seat_distributed(size_t at) {
    JobWork& work = all_.jobs[at];
    const int size = size_of(work);
    struct Candidate {
      int moved;    // replicas that have to go
      bool others;  // not its own
      int cap;
      size_t node;
    };
    std::vector<Candidate> candidates;
    for (const size_t node : nodes_of(work)) {
      int moved = 0;
      bool movable = true;
      for (const size_t other : holders_[node]) {
        const JobWork& held = all_.jobs[other];
        movable &= !held.pinned && only_on(held, node);
        moved += static_cast<int>(held.given.size());
      }
      if (!movable) continue;
      int cap = 0;
      for (const size_t other : holders_[node]) room_.give_back(node, all_.jobs[other].need, count_of(other));
      cap = room_.fits(node, work.need, size);
      for (const size_t other : holders_[node]) room_.take(node, all_.jobs[other].need, count_of(other));
      if (cap > 0) candidates.push_back({moved, !had(work, node), cap, node});
    }
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(a.moved, a.others, b.cap, a.node) < std::tie(b.moved, b.others, a.cap, b.node);
    });
    int64_t found = 0;
    size_t count = 0;
    while (count < candidates.size() && found < size) found += candidates[count++].cap;
    if (found < size) return seat_anywhere(at);
    candidates.resize(count);
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return std::tie(b.cap, a.others, a.node) < std::tie(a.cap, b.others, b.node);
    });
    int left = size;
    for (const Candidate& one : candidates) {
      if (left == 0) break;
      const int here = std::min(left, one.cap);
      // The last node may be shared: only as many have to go as stand in the way.
      while (room_.fits(one.node, work.need, here) < here) send_away(*holders_[one.node].begin());
      give(at, one.node, here);
      left -= here;
    }
    return true;
  }

  int count_of(size_t at) const { return static_cast<int>(all_.jobs[at].given.size()); }

  // Whatever is free, the nodes with most room first. Nobody moves for it.
  bool seat_anywhere(size_t at) {
    const JobWork& work = all_.jobs[at];
    const int size = size_of(work);
    std::vector<std::pair<int, size_t>> rooms;
    int64_t found = 0;
    for (const size_t node : nodes_of(work)) {
      const int fits = room_.fits(node, work.need, size);
      if (fits > 0) rooms.emplace_back(-fits, node);
      found += fits;
    }
    if (found < size) return false;
    std::sort(rooms.begin(), rooms.end());
    int left = size;
    for (const auto& [fits, node] : rooms) {
      const int here = std::min(left, -fits);
      if (here > 0) give(at, node, here);
      left -= here;
    }
    return true;
  }

  Allocating& all_;
  SeatRoom& room_;
  std::vector<std::set<size_t>> holders_;  // jobs on each node, but pinned ones
  std::priority_queue<Pending> pending_;
};

}  // namespace

int SeatRoom::times(const Amounts& room, const Amounts& need, int most) {
  int64_t out = most;
  for (size_t i = 0; i < need.size(); ++i) {
    if (need[i] > 0) out = std::min(out, room[i] / need[i]);
  }
  return static_cast<int>(out);
}

void SeatRoom::take(size_t node, const Amounts& need, int count) {
  for (size_t i = 0; i < need.size(); ++i) free_[node][i] -= need[i] * count;
  CHECK(std::all_of(free_[node].begin(), free_[node].end(), [](int64_t left) { return left >= 0; }));
}

void SeatRoom::give_back(size_t node, const Amounts& need, int count) {
  for (size_t i = 0; i < need.size(); ++i) free_[node][i] += need[i] * count;
}

void seat_jobs(Allocating& all, SeatRoom& room) { Seating(all, room).run(); }

}  // namespace rubato::policy
