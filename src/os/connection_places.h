// ConnectionPlaces: which connections a listener keeps before they have proven anything. Pure: the time is given.
//
// There are places for strangers, and places of their own for those who have proven themselves before and for our own
// user. A newcomer always gets a place: when all are taken, the oldest connection of whoever holds the most goes. So a
// crowd of one peer displaces itself, and nobody else. A stranger who comes too often is turned away at once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/time.h"
#include "os/http_rate.h"
#include "os/peer.h"

namespace rubato::os {

struct PlaceLimits {
  size_t strangers_max = 256;
  size_t known_max = 512;
  double strangers_per_second = 200;  // new connections of one stranger, in the long run
  double strangers_burst = 400;
};
// The same, or fewer where this process may have few open files: strangers must leave most of them to us.
PlaceLimits within_open_files(PlaceLimits limits);

class ConnectionPlaces {
 public:
  using Id = uint64_t;
  static constexpr size_t kRememberedMax = 4096;

  explicit ConnectionPlaces(const PlaceLimits& limits)
      : limits_(limits), rates_(limits.strangers_per_second, limits.strangers_burst) {}

  struct Arrival {
    std::optional<Id> place;    // none: turned away
    std::optional<Id> evicted;  // its connection is to be closed; it has left already
  };
  Arrival arrive(const Peer& peer, Instant now);

  // The connection has ended, or has proven itself and needs no place any more. Idempotent.
  void leave(Id place);

  // Somebody with this key has proven himself.
  void remember(const std::string& key);

  // Frees a place of a stranger for its file descriptor. None: there is no stranger.
  std::optional<Id> evict_stranger() { return evict(strangers_); }

  size_t strangers() const { return strangers_.count; }
  size_t known() const { return known_.count; }

 private:
  struct Pool {
    std::map<std::string, std::set<Id>> by_peer;  // ids grow: the first one is the oldest
    size_t count = 0;
  };
  struct Place {
    std::string key;
    Pool* pool;
  };
  std::optional<Id> evict(Pool& pool);

  const PlaceLimits limits_;
  HttpRates rates_;
  Pool strangers_, known_;
  std::map<Id, Place> places_;
  Id next_ = 1;
  std::map<std::string, uint64_t> remembered_;     // key to when, as a count
  std::map<uint64_t, std::string> remembered_at_;  // the oldest first
  uint64_t remembering_ = 0;
};

}  // namespace rubato::os
