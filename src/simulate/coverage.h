// Coverage: the marks that faults leave, and the transitions of nodes and jobs. A run that never met a fault proves
// nothing about it: the shipped scenarios expect each of these, and `make test` fails when none of its seeds reaches
// it.
#pragma once

#include <span>
#include <string_view>

namespace rubato::simulate {

std::span<const std::string_view> fault_marks();       // "fault.head_crash": it struck
std::span<const std::string_view> cloud_marks();       // "cloud.stock_out": the cloud behaved so
std::span<const std::string_view> node_transitions();  // "node up -> lost"
std::span<const std::string_view> job_transitions();   // "job running -> restarting"

// Whether a mark of one of these kinds is one that can be left at all; true for marks of other kinds.
bool known_mark(std::string_view mark);

}  // namespace rubato::simulate
