#include "sim/journal.h"

#include "world/group_commit.h"
#include "world/journal_trim.h"

namespace rubato::sim {

namespace {

CommitLimits sim_journal_limits() {
  CommitLimits limits;
  limits.records_max = 10'000;
  limits.bytes_max = size_t{32} << 20;
  limits.record_bytes_max = size_t{1} << 20;  // the least of the real ones
  return limits;
}

}  // namespace

// A commit on its way to the disk. The program that waits for it may be gone before it lands.
class SimJournal::Write {
 public:
  Write(SimJournal& journal_in, uint64_t id_in, SimProgram& program_in, uint64_t epoch_in)
      : journal(journal_in),
        id(id_in),
        program(program_in),
        epoch(epoch_in),
        landing(*this, &Write::land),
        changed(program.loop()) {}
  void land() { journal.land(id); }

  SimJournal& journal;
  const uint64_t id;
  SimProgram& program;
  const uint64_t epoch;
  std::vector<std::string> records;
  std::optional<JournalSnapshot> snapshot;
  uint64_t keep_records = 0;

  Due<Write> landing;
  Event changed;
  bool settled = false;
  std::optional<Error> error;
  uint64_t end = 0;
};

// The Journal seam as one program sees it.
class ProgramJournal final : public Journal {
 public:
  ProgramJournal(SimJournal& journal, SimProgram& program, uint64_t epoch)
      : journal_(journal),
        program_(program),
        epoch_(epoch),
        group_(program.loop(), sim_journal_limits(),
               [this](std::vector<std::string> records) { return commit(*this, std::move(records)); }) {}

  Task<uint64_t> append(std::vector<std::string> records) override { return group_.append(std::move(records)); }

  Task<std::vector<JournalRecord>> read(uint64_t after, size_t count_max) override {
    co_await Sleep(program_.loop(), journal_.answer_due(program_));
    journal_.check_epoch(epoch_);
    std::vector<JournalRecord> records;
    std::string chain = journal_.chain_at(after);
    for (auto at = journal_.records_.upper_bound(after); at != journal_.records_.end(); ++at) {
      if (records.size() == count_max) break;
      JournalRecord record;
      record.offset = at->first;
      record.bytes = at->second;
      const std::string said = journal_.chain_at(at->first);
      if (!chain.empty() && said != chain_next(chain, at->first, at->second)) {
        JournalLoss loss;
        loss.first = loss.last = at->first;
        loss.cause = "a record is damaged";
        throw loss_error(loss, journal_.machine_.name());
      }
      chain = said;
      records.push_back(std::move(record));
    }
    co_return records;
  }

  Task<std::optional<JournalSnapshot>> snapshot(uint64_t offset_max) override {
    co_await Sleep(program_.loop(), journal_.answer_due(program_));
    journal_.check_epoch(epoch_);
    const auto above = journal_.snapshots_.upper_bound(offset_max);
    if (above == journal_.snapshots_.begin()) co_return std::nullopt;
    JournalSnapshot found;
    found.offset = std::prev(above)->first;
    found.bytes = std::prev(above)->second;
    co_return found;
  }

  Task<void> write_snapshot(JournalSnapshot snapshot, uint64_t keep_records) override {
    co_await landed(journal_.begin(program_, epoch_, std::move(snapshot), keep_records));
  }

  Task<void> check() override {
    journal_.check_epoch(epoch_);
    co_return;
  }

 private:
  static Task<uint64_t> commit(ProgramJournal& self, std::vector<std::string> records) {
    return landed(self.journal_.begin(self.program_, self.epoch_, std::move(records)));
  }
  static Task<uint64_t> landed(std::shared_ptr<SimJournal::Write> write) {
    while (!write->settled) co_await write->changed.wait();
    if (write->error) throw Error(*write->error);
    co_return write->end;
  }

  SimJournal& journal_;
  SimProgram& program_;
  const uint64_t epoch_;
  GroupCommit group_;
};

SimJournal::SimJournal(Simulator& simulator, SimMachine& machine)
    : simulator_(simulator), machine_(machine), random_(simulator.random().fork()) {}

SimJournal::~SimJournal() = default;

Duration SimJournal::latency() { return latency_min + seconds(random_.unit() * to_seconds(latency_max - latency_min)); }

Task<std::unique_ptr<Journal>> SimJournal::open(SimProgram& program) {
  co_await Sleep(program.loop(), answer_due(program));
  // What dead programs left behind is in or not, once and for all.
  std::vector<uint64_t> orphans;
  for (const auto& [id, write] : writes_) {
    if (!write->program.running()) orphans.push_back(id);
  }
  for (const uint64_t id : orphans) land(id);
  verify();
  struck_ = false;
  ++epoch_;
  JournalNote note;
  note.offset = end_;
  note.chain = chain_at(end_);
  note.epoch = epoch_;
  note_ = note;
  simulator_.record(EventKind::kStore, machine_.node(), epoch_);
  co_return std::make_unique<ProgramJournal>(*this, program, epoch_);
}

std::shared_ptr<SimJournal::Write> SimJournal::begin(SimProgram& program, uint64_t epoch,
                                                     std::vector<std::string> records) {
  auto write = std::make_shared<Write>(*this, next_write_++, program, epoch);
  write->records = std::move(records);
  start(write);
  return write;
}

std::shared_ptr<SimJournal::Write> SimJournal::begin(SimProgram& program, uint64_t epoch, JournalSnapshot snapshot,
                                                     uint64_t keep_records) {
  auto write = std::make_shared<Write>(*this, next_write_++, program, epoch);
  write->snapshot = std::move(snapshot);
  write->keep_records = keep_records;
  start(write);
  return write;
}

// By the simulator's timers, not the program's: the kernel goes on with it when the program is stopped or dead.
void SimJournal::start(const std::shared_ptr<Write>& write) {
  writes_.emplace(write->id, write);
  simulator_.arm(write->landing, simulator_.now() + latency());
}

void SimJournal::land(uint64_t id) {
  const auto found = writes_.find(id);
  const std::shared_ptr<Write> write = std::move(found->second);
  writes_.erase(found);
  write->landing.disarm();
  if (!write->program.running()) {
    const bool is_in = random_.chance(0.5);
    simulator_.mark(is_in ? "journal.unheard" : "journal.lost");
    if (!is_in) return;
  }
  apply(*write);
}

std::string SimJournal::chain_at(uint64_t offset) const {
  const auto found = chains_.find(offset);
  return found == chains_.end() ? "" : found->second;
}

void SimJournal::cut_tail(uint64_t records) {
  if (records == 0 || end_ == 0) return;
  simulator_.mark("journal.tail_cut");
  simulator_.record(EventKind::kStore, machine_.node(), hash_of("cut") ^ records);
  forget_from(end_ - std::min(records, end_) + 1);
  struck_ = true;
}

void SimJournal::damage_record(uint64_t offset) {
  const auto found = records_.find(offset);
  if (found == records_.end()) return;
  simulator_.mark("journal.record_damaged");
  simulator_.record(EventKind::kStore, machine_.node(), hash_of("damaged") ^ offset);
  found->second += "?";
}

void SimJournal::remove_file() {
  simulator_.mark("journal.file_gone");
  simulator_.record(EventKind::kStore, machine_.node(), hash_of("gone"));
  forget_from(0);
  struck_ = true;
}

// Snapshots that lie there go too: they are in the same file.
void SimJournal::forget_from(uint64_t first) {
  records_.erase(records_.lower_bound(first), records_.end());
  snapshots_.erase(snapshots_.lower_bound(first), snapshots_.end());
  chains_.erase(chains_.lower_bound(first), chains_.end());
  end_ = 0;
  if (!records_.empty()) end_ = records_.rbegin()->first;
  if (!snapshots_.empty()) end_ = std::max(end_, snapshots_.rbegin()->first);
}

// As a head reads it: the newest snapshot, and the records after it.
std::optional<JournalLoss> SimJournal::find_damage() const {
  uint64_t last = snapshots_.empty() ? 0 : snapshots_.rbegin()->first;
  std::string chain = chain_at(last);
  for (auto at = records_.upper_bound(last); at != records_.end(); ++at) {
    const std::string said = chain_at(at->first);
    if (at->first != last + 1 || said != chain_next(chain, at->first, at->second)) {
      JournalLoss loss;
      loss.first = last + 1;
      loss.last = std::max(end_, note_ ? note_->offset : 0);
      loss.epoch = note_ ? note_->epoch : epoch_;
      loss.cause = "record " + std::to_string(last + 1) + " is damaged or missing";
      return loss;
    }
    last = at->first;
    chain = said;
  }
  return note_ ? find_loss(*note_, end_, chain_at(note_->offset)) : std::nullopt;
}

void SimJournal::verify() {
  const std::optional<JournalLoss> loss = find_damage();
  if (!loss) return;
  if (!accept_loss) {
    simulator_.mark("journal.refused");
    throw loss_error(*loss, machine_.name());
  }
  simulator_.mark("journal.loss_accepted");
  const EncodeLoss encode = std::exchange(accept_loss, nullptr);
  forget_from(loss->first);
  const std::string bytes = encode(*loss);
  chains_[end_ + 1] = chain_next(chain_at(end_), end_ + 1, bytes);
  records_.emplace(++end_, bytes);
}

void SimJournal::check_epoch(uint64_t epoch) const {
  if (epoch == epoch_ && struck_) {
    throw Error(ErrorCode::kConflict, "the journal was deleted, replaced or cut while it was in use", machine_.name());
  }
  if (epoch == epoch_) return;
  throw Error(ErrorCode::kConflict, "another program has taken over the journal", machine_.name());
}

void SimJournal::apply(Write& write) {
  try {
    check_epoch(write.epoch);
    if (machine_.disk().free_bytes() == 0) {
      simulator_.mark("journal.disk_full");
      throw Error(ErrorCode::kUnavailable, "cannot write the journal: the disk is full", machine_.name());
    }
    if (write.snapshot) {
      apply_snapshot(write);
    } else if (!apply_records(write)) {
      return;
    }
  } catch (const Error& error) {
    write.error = error;
  }
  write.settled = true;
  write.changed.notify();
}

// False: its program was struck down just before.
bool SimJournal::apply_records(Write& write) {
  const bool was_running = write.program.running();
  const uint64_t first = end_ + 1, last = end_ + write.records.size();
  const auto report = [&](Durable when) {
    for (uint64_t offset = first; was_running && on_commit && offset <= last; ++offset) on_commit(offset, when);
  };
  report(Durable::kBefore);
  if (was_running && !write.program.running()) return false;
  for (std::string& record : write.records) {
    simulator_.record(EventKind::kStore, machine_.node(), hash_of(record) ^ end_);
    chains_[end_ + 1] = chain_next(chain_at(end_), end_ + 1, record);
    records_.emplace(++end_, std::move(record));
  }
  ++commits_;
  write.end = end_;
  report(Durable::kAfter);
  // Who dies here has told nobody of the records; they may be in, and the note lags.
  if (!was_running || write.program.running()) {
    JournalNote note;
    note.offset = end_;
    note.chain = chain_at(end_);
    note.epoch = epoch_;
    note_ = note;
  }
  return true;
}

void SimJournal::apply_snapshot(const Write& write) {
  const JournalSnapshot& snapshot = *write.snapshot;
  if (snapshot.offset > end_) {
    throw Error(ErrorCode::kFailed, "a snapshot at " + std::to_string(snapshot.offset) + " is beyond the journal's end",
                machine_.name());
  }
  simulator_.record(EventKind::kStore, machine_.node(), hash_of(snapshot.bytes) ^ snapshot.offset);
  snapshots_[snapshot.offset] = snapshot.bytes;
  std::vector<uint64_t> offsets;
  for (const auto& [offset, bytes] : snapshots_) offsets.push_back(offset);
  const JournalTrim trim = plan_trim(offsets, snapshot.offset, write.keep_records);
  records_.erase(records_.begin(), records_.lower_bound(trim.records_below));
  snapshots_.erase(snapshots_.begin(), snapshots_.lower_bound(trim.snapshots_below));
  const uint64_t kept = std::min(snapshots_.begin()->first, records_.empty() ? end_ : records_.begin()->first);
  chains_.erase(chains_.begin(), chains_.lower_bound(kept));
}

}  // namespace rubato::sim
