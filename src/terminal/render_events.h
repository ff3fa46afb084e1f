// Events, log lines and explanations for people: pure functions of the API's documents.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/event_documents.h"
#include "api/reasons.h"
#include "terminal/layout.h"

namespace rubato::cli {

// "2026-11-15 03:54:46  job.started    train starts with 2 workers": one line of `rubato events`.
std::string event_line(const api::Event& event, const Style& look);

// A few events with their age, oldest first; for status and `job show`.
std::string recent_events(const std::vector<api::Event>& events, const Style& look);

struct LogStyle {
  bool prefix = true;
  bool colour = false;
};
// "[3@small-1] text": one line of a job's log, with its newline. The text is the worker's own, untouched.
std::string log_line(const nlohmann::json& entry, const LogStyle& look);

// "place 3 of 7; ahead: j-1 (train, ann, priority 5), j-2 (eval, bob)"; empty for a job that does not wait.
std::string queue_text(const api::QueuePlace& queue);

std::string why_text(const api::Why& why, const Style& look);

}  // namespace rubato::cli
