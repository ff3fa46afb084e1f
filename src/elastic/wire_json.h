// The JSON of values that several protocols carry; for wire.cc and node_wire.cc only.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "elastic/group_plan.h"
#include "elastic/member.h"
#include "elastic/restart.h"
#include "model/limits.h"

namespace rubato::elastic::wire {

using nlohmann::json;

[[noreturn]] void not_ours(std::string_view sentence);  // an Error: "not a message of an agent: WORDS"

// As it stands there, or an Error: get<>() would cut off what does not fit.
template <class T, class Key>
T number(const json& object, Key key) {
  const json& value = object.at(key);
  if (value.is_number_unsigned() && std::in_range<T>(value.get<uint64_t>()))
    return static_cast<T>(value.get<uint64_t>());
  if (value.is_number_integer() && !value.is_number_unsigned() && std::in_range<T>(value.get<int64_t>())) {
    return static_cast<T>(value.get<int64_t>());
  }
  not_ours(fmt::format("'{}' is not a number that fits", key));
}

// An enumeration whose values are 0..last.
template <class E>
E read_enum(const json& object, const char* key, E last) {
  const int value = number<int>(object, key);
  if (value < 0 || value > static_cast<int>(last)) not_ours(fmt::format("'{}' is {}, which means nothing", key, value));
  return static_cast<E>(value);
}

inline int64_t to_micros(Duration d) { return d.count() / 1000; }
Duration from_micros(int64_t us);

// The text there, cut off behind so many bytes: a person who wrote it, or a program, knows no limit of ours.
std::string cut_text(const json& object, const char* key, size_t bytes_max = kAgentTextMax);

// The document, looked at before it is parsed.
json parse_message(std::string_view text);

// The array there, of at most so many entries.
const json& list_at(const json& object, const char* key, size_t size_max);

json member_json(const MemberInfo& m);
MemberInfo read_member(const json& j);

json assignment_json(const Assignment& a);
Assignment read_assignment(const json& j);

// Times travel as ages against `now`.
json failures_json(const std::vector<Failure>& failures, Instant now);
// The texts of all of them together have a bound: the last ones are cut off.
std::vector<Failure> read_failures(const json& list, Instant now);

// Workers that live on from one generation to the next.
json slots_json(const std::vector<WorkerSlot>& slots);
std::vector<WorkerSlot> read_slots(const json& message);  // of its "slots"
json store_json(const MeetingPlace& store);
MeetingPlace read_store(const json& j);
json plan_json(const GroupPlan& plan);
GroupPlan read_plan(const json& j);

// One line. A host name or traceback need not be valid UTF-8: what is not is replaced; it never throws.
std::string to_text(const json& message);

}  // namespace rubato::elastic::wire
