#include "os/connection_places.h"

#include <sys/resource.h>

#include <algorithm>

namespace rubato::os {

PlaceLimits within_open_files(PlaceLimits limits) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return limits;
  const size_t share = std::max<size_t>(8, static_cast<size_t>(files.rlim_cur) / 8);
  limits.strangers_max = std::min(limits.strangers_max, share);
  limits.known_max = std::min(limits.known_max, share);
  return limits;
}

ConnectionPlaces::Arrival ConnectionPlaces::arrive(const Peer& peer, Instant now) {
  const bool known = peer.ours || remembered_.contains(peer.key);
  Arrival arrival;
  if (!known && !rates_.take(peer.key, now)) return arrival;
  Pool& pool = known ? known_ : strangers_;
  arrival.place = next_++;
  places_[*arrival.place] = Place{peer.key, &pool};
  pool.by_peer[peer.key].insert(*arrival.place);
  ++pool.count;
  if (pool.count > (known ? limits_.known_max : limits_.strangers_max)) arrival.evicted = evict(pool);
  return arrival;
}

void ConnectionPlaces::leave(Id id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  Pool& pool = *place->second.pool;
  const auto peer = pool.by_peer.find(place->second.key);
  peer->second.erase(id);
  if (peer->second.empty()) pool.by_peer.erase(peer);
  --pool.count;
  places_.erase(place);
}

std::optional<ConnectionPlaces::Id> ConnectionPlaces::evict(Pool& pool) {
  const std::set<Id>* most = nullptr;
  for (const auto& [key, ids] : pool.by_peer) {
    const bool more =
        !most || ids.size() > most->size() || (ids.size() == most->size() && *ids.begin() < *most->begin());
    if (more) most = &ids;
  }
  if (!most) return std::nullopt;
  const Id oldest = *most->begin();
  leave(oldest);
  return oldest;
}

void ConnectionPlaces::remember(const std::string& key) {
  if (key == kUnknownUser) return;  // it could be anybody
  const auto before = remembered_.find(key);
  if (before != remembered_.end()) remembered_at_.erase(before->second);
  remembered_[key] = ++remembering_;
  remembered_at_[remembering_] = key;
  if (remembered_.size() <= kRememberedMax) return;
  remembered_.erase(remembered_at_.begin()->second);
  remembered_at_.erase(remembered_at_.begin());
}

}  // namespace rubato::os
