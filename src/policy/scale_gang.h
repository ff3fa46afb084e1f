// Gangs: all bundles of one get a place, or none.
#pragma once

#include <map>

#include "policy/scale_pack.h"
#include "policy/scale_work.h"

namespace rubato::policy {

// What keeps bundles from a place.
struct Binding {
  ScaleLimit limit = ScaleLimit::kNone;
  std::string text;
  std::optional<size_t> type;  // the one that would hold it if the limit were gone
};
// For one more node that holds `need`.
Binding binding_limit(const Supply& supply, const Rooms& rooms, std::span<const double> need);

struct GangFailure {
  size_t gang = 0;
  Binding binding;
};

// Whether the gang cares how it sits, though it takes what it gets.
bool has_wish(const Gang& gang);

// Seats whole gangs on the nodes of a packing, and on new ones; puts everything back when one bundle stays without.
// One seater is for one packing, to which nothing is given back meanwhile.
class GangSeater {
 public:
  // `heed`: what PACK and SPREAD wish for is tried, and taken where it opens nothing dearer.
  GangSeater(const Dimensions& dimensions, const Rooms& rooms, const PackStyle& style, size_t cells_max, bool heed)
      : dimensions_(dimensions), rooms_(rooms), style_(style), cells_max_(cells_max), heed_(heed) {}

  // The packing's own stock is not touched. nullopt: it is seated.
  std::optional<Binding> seat(Packing& packing, const Gang& gang, int index);

  // What keeps it out when no more nodes are to be had, and those that are there cannot hold all of it: known without
  // packing it. nullopt: it may fit.
  std::optional<Binding> no_room(const Packing& packing, const Gang& gang);

 private:
  struct Whole {  // what must be on one node
    std::vector<double> need;
    std::vector<GangSeat> seats;
  };
  Whole whole(const Gang& gang, int index) const;
  std::vector<Whole> one_by_one(const Packing& packing, const Gang& gang, int index) const;
  std::optional<Binding> seat_as_wished(Packing& packing, const Gang& gang, int index);
  std::optional<Packing> spread_out(const Packing& packing, const Packing& seated, std::vector<Whole> parts) const;
  std::optional<Binding> seat_apart(Packing& packing, std::vector<Whole> parts) const;
  std::optional<Binding> seat_anyhow(Packing& packing, const Gang& gang, int index);
  size_t cheapest_for(const Packing& packing, std::span<const double> need) const;

  const Dimensions& dimensions_;
  const Rooms& rooms_;
  const PackStyle& style_;
  size_t cells_max_;
  bool heed_;
  std::map<std::vector<double>, int64_t> without_room_;  // by size of a bundle: the fewest that found none
};

}  // namespace rubato::policy
