#include "core/loop.h"

#include "core/error.h"

namespace rubato {

void Waiter::unlink() {
  if (!list_) return;
  (previous_ ? previous_->next_ : list_->head_) = next_;
  (next_ ? next_->previous_ : list_->tail_) = previous_;
  list_ = nullptr;
  previous_ = next_ = nullptr;
}

WaitList::~WaitList() {
  while (pop()) {
  }
}

void WaitList::push(Waiter& waiter) {
  waiter.unlink();
  waiter.list_ = this;
  waiter.previous_ = tail_;
  (tail_ ? tail_->next_ : head_) = &waiter;
  tail_ = &waiter;
}

Waiter* WaitList::pop() {
  Waiter* first = head_;
  if (first) first->unlink();
  return first;
}

void Timed::disarm() {
  if (!scheduler_) return;
  scheduler_->timers_.erase(this);
  scheduler_ = nullptr;
}

Scheduler::~Scheduler() {
  while (!timers_.empty()) (*timers_.begin())->disarm();
}

void Scheduler::arm(Timed& timed, Instant at) {
  timed.disarm();
  timed.at_ = at;
  timed.sequence_ = next_sequence_++;
  timed.scheduler_ = this;
  timers_.insert(&timed);
}

bool Scheduler::drain() {
  bool any = false;
  while (Waiter* waiter = ready_.pop()) {
    any = true;
    waiter->handle.resume();
  }
  return any;
}

std::optional<Instant> Scheduler::next_due() const {
  if (timers_.empty()) return std::nullopt;
  return (*timers_.begin())->at_;
}

bool Scheduler::fire_due(Instant now, size_t most) {
  bool any = false;
  for (; most > 0 && !timers_.empty() && (*timers_.begin())->at_ <= now; --most) {
    Timed* timed = *timers_.begin();
    timed->disarm();
    timed->due();
    any = true;
  }
  return any;
}

}  // namespace rubato
