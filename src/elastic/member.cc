#include "elastic/member.h"

#include <algorithm>
#include <map>

namespace rubato::elastic {

std::vector<Assignment> assign_ranks(const std::vector<MemberInfo>& order) {
  std::vector<Assignment> places;
  std::map<std::string, int> role_sizes;
  int next_rank = 0;
  for (const MemberInfo& member : order) {
    Assignment place;
    place.group_rank = static_cast<int>(places.size());
    place.group_world_size = static_cast<int>(order.size());
    place.first_rank = next_rank;
    place.first_role_rank = role_sizes[member.role];
    next_rank += member.nproc;
    role_sizes[member.role] += member.nproc;
    places.push_back(place);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    places[i].world_size = next_rank;
    places[i].role_world_size = role_sizes[order[i].role];
  }
  return places;
}

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

std::string reachable_address(const MemberInfo& member, const std::vector<MemberInfo>& round) {
  const bool one_machine =
      std::ranges::all_of(round, [&](const MemberInfo& other) { return other.machine == member.machine; });
  if (one_machine || !is_loopback(member.address) || member.addresses.empty()) return member.address;
  return member.addresses.front();
}

}  // namespace rubato::elastic
