#include "world/group_commit.h"

namespace rubato {

Task<uint64_t> GroupCommit::append(std::vector<std::string> records) {
  if (conflict_) throw Error(*conflict_);
  for (const std::string& record : records) {
    if (record.size() <= limits_.record_bytes_max) continue;
    throw Error(ErrorCode::kFailed, "a journal record of " + std::to_string(record.size()) +
                                        " bytes is too large; at most " + std::to_string(limits_.record_bytes_max));
  }
  auto mine = std::make_shared<Append>(loop_);
  mine->records = std::move(records);
  queue_.push_back(mine);
  if (!running_) {
    running_ = true;
    scope_.spawn(run());
  }
  while (!mine->offset && !mine->error) co_await mine->settled.wait();
  if (mine->error) throw Error(*mine->error);
  co_return *mine->offset;
}

Task<void> GroupCommit::run() {
  bool go_on = true;
  while (go_on) go_on = co_await commit_some();
  running_ = false;
}

// False: nothing is left to do.
Task<bool> GroupCommit::commit_some() {
  co_await NextTurn(loop_);
  std::vector<std::string> records = take();
  const size_t count = records.size();
  try {
    Task<uint64_t> commit = commit_(std::move(records));
    const uint64_t end = co_await std::move(commit);
    ++commits_;
    settle(end, count);
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::kFailed, error.what()));
  }
  co_return !queue_.empty();
}

// The records of the next commit: whole appends while they fit, or a part of one that alone is too large.
std::vector<std::string> GroupCommit::take() {
  std::vector<std::string> batch;
  size_t bytes = 0;
  const auto fits = [&](size_t count, size_t size) {
    return batch.size() + count <= limits_.records_max && bytes + size <= limits_.bytes_max;
  };
  for (const std::shared_ptr<Append>& append : queue_) {
    size_t rest_bytes = 0;
    for (size_t i = append->taken; i < append->records.size(); ++i) rest_bytes += append->records[i].size();
    const bool whole = fits(append->records.size() - append->taken, rest_bytes);
    if (!whole && !batch.empty()) break;
    while (append->taken < append->records.size()) {
      std::string& record = append->records[append->taken];
      if (!batch.empty() && !fits(1, record.size())) return batch;
      bytes += record.size();
      batch.push_back(std::move(record));
      ++append->taken;
    }
  }
  return batch;
}

// `count` more records are in and end at offset `end`: answers the appends that are in to their last record, in order.
void GroupCommit::settle(uint64_t end, size_t count) {
  uint64_t offset = end - count;
  while (!queue_.empty()) {
    const std::shared_ptr<Append> first = queue_.front();
    const size_t now_in = first->taken - first->committed;
    first->committed += now_in;
    offset += now_in;
    if (first->committed < first->records.size()) return;
    queue_.pop_front();
    first->offset = offset;
    first->settled.notify();
  }
}

void GroupCommit::fail(const Error& error) {
  if (error.code == ErrorCode::kConflict) conflict_ = error;
  std::deque<std::shared_ptr<Append>> failed;
  failed.swap(queue_);
  for (const std::shared_ptr<Append>& append : failed) {
    append->error = error;
    append->settled.notify();
  }
}

}  // namespace rubato
