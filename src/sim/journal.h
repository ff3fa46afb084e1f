// SimJournal: a journal on the disk of one simulated machine. It survives its programs and power cuts.
//
// A commit takes a while (seeded). One under way when its program dies, or its machine loses power, is in or not: the
// seed decides, at the latest when the next program opens the journal. What a program was told is in, is in.
// on_commit lets a test strike exactly before or after a record becomes durable.
//
// Records are chained, and the end is noted outside of the file, by the rules of world/journal_chain.h: when a commit
// is durable, and before its program hears of it. cut_tail, damage_record and remove_file do to the file what people
// and disks do; the note is another file, which stays. Opening then refuses (DamagedError), or goes on with what is
// left if `accept_loss` is set.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/machine.h"
#include "world/journal.h"
#include "world/journal_chain.h"

namespace rubato::sim {

enum class Durable { kBefore, kAfter };

class SimJournal {
 public:
  // The machine must outlive it. Programs that opened it must not run on without it.
  SimJournal(Simulator& simulator, SimMachine& machine);
  ~SimJournal();

  // Takes the journal over for a program of the machine. The journal it gives lives no longer than the program.
  Task<std::unique_ptr<Journal>> open(SimProgram& program);

  Duration latency_min = 500us, latency_max = 5ms;  // of every call

  // For each record of a running program's commit: kBefore for all of them; then the commit is durable; then kAfter for
  // all, before the program hears of it. It may kill the program or crash the machine: in kBefore, the commit is then
  // not in.
  std::function<void(uint64_t offset, Durable when)> on_commit;

  // Strikes at the file. While a program has it open, its next commit fails with kConflict, as the file is not its own
  // any more, except for damage_record, which is noticed when the record is read.
  void cut_tail(uint64_t records);      // the newest ones go
  void damage_record(uint64_t offset);  // its bytes are others
  void remove_file();                   // records and snapshots are gone
  EncodeLoss accept_loss;               // if set, the next opening goes on with what is left
  const std::optional<JournalNote>& note() const { return note_; }

  // What is on the disk. With disk().set_free_bytes(0), writes throw kUnavailable.
  const std::map<uint64_t, std::string>& records() const { return records_; }
  const std::map<uint64_t, std::string>& snapshots() const { return snapshots_; }
  uint64_t end() const { return end_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t commits() const { return commits_; }

 private:
  friend class ProgramJournal;
  class Write;
  std::shared_ptr<Write> begin(SimProgram& program, uint64_t epoch, std::vector<std::string> records);
  std::shared_ptr<Write> begin(SimProgram& program, uint64_t epoch, JournalSnapshot snapshot, uint64_t keep_records);
  void start(const std::shared_ptr<Write>& write);
  void land(uint64_t id);
  void apply(Write& write);
  bool apply_records(Write& write);
  void apply_snapshot(const Write& write);
  void check_epoch(uint64_t epoch) const;
  void verify();
  std::optional<JournalLoss> find_damage() const;
  void forget_from(uint64_t first);
  std::string chain_at(uint64_t offset) const;
  Duration latency();
  Instant answer_due(SimProgram& program) { return program.loop().now() + latency(); }

  Simulator& simulator_;
  SimMachine& machine_;
  Random random_;
  std::map<uint64_t, std::string> records_, snapshots_;
  std::map<uint64_t, std::string> chains_;  // of records and of snapshots
  std::optional<JournalNote> note_;
  bool struck_ = false;  // since it was opened: the file is not the one that is open
  uint64_t end_ = 0, epoch_ = 0, commits_ = 0;
  std::map<uint64_t, std::shared_ptr<Write>> writes_;  // under way
  uint64_t next_write_ = 1;
};

}  // namespace rubato::sim
