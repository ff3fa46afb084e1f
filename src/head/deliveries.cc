// The Controller's answers to what nodes' workers have left: lines of dead agents, outputs. See sessions.h.
#include "head/controller.h"

namespace rubato::head {

using cluster::NodePhase;
using cluster::Output;
using elastic::OutputAck;

namespace {
constexpr const char* kMayStillWrite = "its workers may still write";
}  // namespace

Task<uint64_t> Controller::keep_last_lines(NodeId node, elastic::LogLines lines) {
  const uint64_t all = lines.lines.empty() ? 0 : lines.lines.back().sequence;
  AgentId agent = lines.agent;
  if (agent.value.empty()) {
    const auto it = state_.nodes.find(node);
    // A node that never joined had nothing to run.
    if (it == state_.nodes.end() || it->second.agent.value.empty()) co_return all;
    agent = it->second.agent;
  }
  co_return co_await keep_lines(node, agent, std::move(lines));
}

const Output* Controller::output_of(const JobId& job, const NodeId& node) const {
  const auto known = state_.jobs.find(job);
  if (known == state_.jobs.end()) return nullptr;
  const auto it = known->second.outputs.find(node);
  return it == known->second.outputs.end() ? nullptr : &it->second;
}

// A node that is given up has no workers.
bool Controller::may_still_write(const JobId& job, const NodeId& node) const {
  const auto known = state_.nodes.find(node);
  if (known == state_.nodes.end() || known->second.phase == NodePhase::kLost ||
      known->second.phase == NodePhase::kRemoving) {
    return false;
  }
  const auto here = state_.jobs_on.find(node);
  return here != state_.jobs_on.end() && here->second.contains(job);
}

void Controller::miss_output(const JobId& job, const NodeId& node, const std::string& reason) {
  log_.warning("output not kept", {{"job", job.value}, {"node", node.value}, {"why", reason}});
  const Output* output = output_of(job, node);
  // It is tried again and again; the journal is told what is new.
  if (!output || output->phase == Output::Phase::kKept) return;
  if (output->phase == Output::Phase::kMissing && output->reason == reason) return;
  tell(cluster::OutputMissing{job, node, reason});
}

Task<OutputAck> Controller::output_offered(NodeId node, JobId job) {
  OutputAck ack;
  ack.job = job;
  const Output* output = output_of(job, node);
  if (!output || output->phase == Output::Phase::kKept) {
    ack.state = OutputAck::State::kKept;
  } else if (may_still_write(job, node)) {
    ack.state = OutputAck::State::kRefused;
    ack.reason = kMayStillWrite;
  } else {
    ack.have = co_await outputs_.have(job, node);
    // Another one may have brought it while this one waited.
    output = output_of(job, node);
    if (!output || output->phase == Output::Phase::kKept) ack.state = OutputAck::State::kKept;
  }
  co_return ack;
}

Task<OutputAck> Controller::keep_output(NodeId node, elastic::OutputPart part) {
  OutputAck ack;
  ack.job = part.job;
  const Output* output = output_of(part.job, node);
  if (!output) {
    ack.state = OutputAck::State::kKept;
    co_return ack;
  }
  if (may_still_write(part.job, node)) {
    // It was placed there again meanwhile.
    ack.state = OutputAck::State::kRefused;
    ack.reason = kMayStillWrite;
    co_return ack;
  }
  const Generation generation = output->generation;
  std::string trouble;
  bool whole = false;
  try {
    ack.have = outputs_.add(part.job, node, part.offset, part.bytes);
    // More than was said to be all of it is not what was begun: the hash will not be right.
    const bool all = part.last && ack.have >= part.offset + part.bytes.size();
    if (all) whole = co_await outputs_.finish(part.job, node, part.hash, part.content_bytes);
    if (all && !whole) ack.have = 0;
  } catch (const Error& error) {
    trouble = error.message;
  }
  if (!trouble.empty()) {
    miss_output(part.job, node, trouble);
    ack.have = 0;
    ack.state = OutputAck::State::kRefused;
    ack.reason = trouble;
    co_return ack;
  }
  if (!whole) co_return ack;
  std::vector<cluster::Event> events;
  events.emplace_back(cluster::OutputKept{part.job, node, generation, part.files, part.content_bytes});
  co_await submit(std::move(events));
  ack.state = OutputAck::State::kKept;
  co_return ack;
}

void Controller::output_trouble(const NodeId& node, const elastic::OutputTrouble& trouble) {
  miss_output(trouble.job, node, "it cannot be read there: " + trouble.reason);
}

// Workers that never started have left no folder: nothing is missing.
void Controller::delivered(const NodeId& node) {
  const auto held = state_.outputs_on.find(node);
  if (held == state_.outputs_on.end()) return;
  for (const JobId& job : held->second) {
    const Output& output = state_.jobs.at(job).outputs.at(node);
    if (output.phase == Output::Phase::kHeld && !may_still_write(job, node))
      tell(cluster::OutputKept{job, node, output.generation, 0, 0});
  }
}

}  // namespace rubato::head
