// NodeAgent and the end of its machine: what it tells the head, and what it does if nobody else does it in time.
#include <fmt/format.h>

#include <algorithm>

#include "node/node_agent.h"

namespace rubato::node {

using elastic::Leaving;
using elastic::ToHead;

namespace {

// Workers that the head has not stopped by then are told to save: so long before the deadline, or in the middle of what
// is left.
constexpr Duration kSaveMax = 30s;
constexpr int kMarginPart = 4;

// Of a machine that goes so soon: for SIGKILL and the last lines.
Duration margin_of(Duration left) { return std::min(agent::kNoticeMargin, left / kMarginPart); }

}  // namespace

Task<void> NodeAgent::read_notices() {
  while (true) {
    const std::optional<MachineNotice> notice = co_await notices_->pop();
    if (!notice) co_return;
    take_notice(*notice);
  }
}

void NodeAgent::take_notice(const MachineNotice& notice) {
  say(fmt::format("{}: {}", notice.what, describe(notice.notice, world_.clock.wall())));
  notice_ = notice.what;
  if (notice.notice.deadline) {
    const Instant now = world_.clock.now();
    const Duration left = agent::time_left(notice.notice, world_.clock.wall());
    if (!machine_ends_ || now + left < *machine_ends_) {
      machine_ends_ = now + left;
      set_deadline(now + left - margin_of(left));
    }
  }
  send_leaving();
}

// The head's word counts as long as it says so; a notice stays.
void NodeAgent::follow_drain(const elastic::Orders& orders) {
  if (!notice_.empty()) {
    if (!orders.drain) send_leaving();  // it has not heard it, or does not remember
    return;
  }
  const Instant now = world_.clock.now();
  if (!orders.drain || !orders.drain_in) {
    if (deadline_) set_deadline(std::nullopt);
    return;
  }
  const Instant deadline = now + *orders.drain_in - margin_of(*orders.drain_in);
  // It is sent again and again, a little later each time.
  if (!deadline_ || deadline < *deadline_ || deadline > *deadline_ + kSaveMax) set_deadline(deadline);
}

void NodeAgent::set_deadline(std::optional<Instant> deadline) {
  deadline_ = deadline;
  const Instant now = world_.clock.now();
  if (deadline) stop_at_ = std::max(now + (*deadline - now) / 2, *deadline - kSaveMax);
  for (const auto& [job, job_order] : runners_) job_order->set_drain_end(deadline);
  deadline_set_.notify();
}

Task<void> NodeAgent::stop_in_time() {
  while (true) {
    if (!deadline_) {
      co_await deadline_set_.wait();
    } else if (world_.clock.now() < stop_at_) {
      co_await deadline_set_.wait_until(stop_at_);
    } else {
      for (const auto& [job, job_order] : runners_) {
        if (job_order->idle()) continue;
        say(fmt::format("the deadline is near: the workers of {} are told to save", job.value));
        job_order->save_and_stop();
      }
      wake();
      co_await deadline_set_.wait();
    }
  }
}

void NodeAgent::send_leaving() {
  if (!connection_ || told_to_end_) return;
  Leaving leaving;
  leaving.reason = notice_.empty() ? ending_ : notice_;
  if (machine_ends_) {
    leaving.in = std::max<Duration>(0s, *machine_ends_ - world_.clock.now());
    leaving.ends = true;
  } else if (!ending_.empty()) {
    leaving.in = time_to_end();
  }
  const ToHead message = std::move(leaving);
  connection_->send(encode(message, world_.clock.now()));
}

}  // namespace rubato::node
