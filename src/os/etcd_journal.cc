#include "os/etcd_journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/text.h"
#include "world/journal_trim.h"

namespace rubato::os {

namespace {

constexpr Duration kPatience = 30s;      // an etcd election takes a few seconds
constexpr Duration kViewPatience = 10s;  // a person waits for it
constexpr size_t kOperationsMax = 100;
constexpr size_t kBytesMax = EtcdJournal::kRecordBytesMax;
constexpr uint64_t kScanSpan = 10;  // offsets that differ in the last digit are read at once: 10 MiB at most
constexpr size_t kScanDigits = 1;
constexpr int kOffsetDigits = 20;

CommitLimits etcd_limits() {
  CommitLimits limits;
  limits.records_max = kOperationsMax;
  limits.bytes_max = limits.record_bytes_max = EtcdJournal::kRecordBytesMax;
  return limits;
}

StoreWrite put(std::string key, std::string value) {
  StoreWrite write;
  write.key = std::move(key);
  write.value = std::move(value);
  return write;
}

StoreWrite erase(std::string key) {
  StoreWrite write;
  write.key = std::move(key);
  return write;
}

std::string digits(uint64_t number) { return fmt::format("{:0{}}", number, kOffsetDigits); }

std::optional<uint64_t> parse_offset(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// In front of a record: "\x01chain:", 32 digits, ":". Events are JSON: none begins so.
constexpr std::string_view kChainMark =
    "\x01"
    "chain:";
constexpr size_t kChainDigits = 32;

std::string with_chain(const std::string& chain, const std::string& bytes) {
  return fmt::format("{}{}:{}", kChainMark, chain, bytes);
}

// Takes it off; empty: the record is older than the chain.
std::string take_chain(std::string& value) {
  const size_t size = kChainMark.size() + kChainDigits + 1;
  if (!value.starts_with(kChainMark) || value.size() < size) return "";
  std::string chain = value.substr(kChainMark.size(), kChainDigits);
  value.erase(0, size);
  return chain;
}

std::vector<StoreCondition> created(const std::string& key, int64_t revision) {
  std::vector<StoreCondition> conditions(1);
  conditions[0].key = key;
  conditions[0].created = revision;
  return conditions;
}

}  // namespace

EtcdJournal::EtcdJournal(Store& store, Clock& clock, std::string prefix, std::string token, EtcdJournalNote note)
    : store_(store),
      clock_(clock),
      prefix_(std::move(prefix)),
      token_(std::move(token)),
      note_(std::move(note)),
      writing_(clock.loop()),
      snapshotting_(clock.loop()),
      group_(clock.loop(), etcd_limits(),
             [this](std::vector<std::string> records) { return commit_records(*this, std::move(records)); }) {}

std::string EtcdJournal::record_key(uint64_t offset) const { return prefix_ + "/journal/" + digits(offset); }
std::string EtcdJournal::snapshot_key(uint64_t offset) const { return prefix_ + "/snapshot/" + digits(offset); }
std::string EtcdJournal::part_key(const std::string& group, uint64_t number) const {
  return fmt::format("{}/part/{}/{:06}", prefix_, group, number);
}
Instant EtcdJournal::deadline() const { return clock_.now() + (is_view_ ? kViewPatience : kPatience); }

Error EtcdJournal::taken_over() {
  lost_ = true;
  return Error(ErrorCode::kConflict, "another process has taken over the journal '" + prefix_ + "' in etcd");
}

void EtcdJournal::damaged(const std::string& key, const std::string& message) const {
  throw DamagedError(fmt::format("the journal in etcd is damaged: '{}' {}", key, message), key,
                     "restore etcd from a backup");
}

Task<std::unique_ptr<EtcdJournal>> EtcdJournal::open(Store& store, Clock& clock, std::string prefix, std::string token,
                                                     EtcdJournalNote note) {
  std::unique_ptr<EtcdJournal> journal(
      new EtcdJournal(store, clock, std::move(prefix), std::move(token), std::move(note)));
  co_await journal->take_over(true);
  co_await journal->check_note();
  co_return journal;
}

std::unique_ptr<EtcdJournal> EtcdJournal::view(Store& store, Clock& clock, std::string prefix) {
  std::unique_ptr<EtcdJournal> journal(new EtcdJournal(store, clock, std::move(prefix), "", {}));
  journal->is_view_ = true;
  return journal;
}

Task<void> EtcdJournal::check_note() {
  if (note_.before) {
    const std::string there = co_await chain_at(note_.before->offset);
    const auto loss = find_loss(*note_.before, end_, there);
    if (loss && !note_.accept_loss) throw loss_error(*loss, "etcd:" + prefix_);
    if (loss) {
      std::vector<std::string> records{note_.accept_loss(*loss)};
      co_await append(std::move(records));
    }
  }
  co_await write_note();
}

// Of one machine's heads: each has an epoch of its own. etcd's revisions are no help: they begin anew with its data.
Task<void> EtcdJournal::write_note() {
  if (!note_.write) co_return;
  JournalNote note;
  note.offset = end_;
  note.chain = chain_;
  note.epoch = (note_.before ? note_.before->epoch : 0) + 1;
  co_await note_.write(std::move(note));
}

// Empty: it is trimmed, or older than the chain.
Task<std::string> EtcdJournal::chain_at(uint64_t offset) {
  if (offset == 0) co_return "";
  std::optional<StoreEntry> entry = co_await store_.get(record_key(offset), deadline());
  if (entry) co_return take_chain(entry->value);
  const Manifests all = co_await manifests();
  const auto found = all.find(offset);
  co_return found == all.end() ? "" : found->second.chain;
}

Task<void> EtcdJournal::check() { return check_writer(); }

// (1) writer there ──delete it──▶ (2) absent ──create it──▶ ours. Two commits, as a transaction may not name a key
// twice. Two that take over at once undo each other until one finds its own token; the other is fenced.
Task<void> EtcdJournal::take_over(bool from_anybody) {
  const std::string key = prefix_ + "/writer";
  const Instant until = deadline();
  for (;;) {
    const std::optional<StoreEntry> writer = co_await store_.get(key, until);
    if (writer && !from_anybody && writer->value != token_) throw taken_over();
    if (writer) {
      std::vector<StoreWrite> removal{erase(key)};
      co_await store_.commit(created(key, writer->created), std::move(removal), until);
    }
    std::vector<StoreWrite> creation{put(key, token_)};
    const CommitResult made = co_await store_.commit(created(key, 0), std::move(creation), until);
    if (made.committed) {
      writer_created_ = made.revision;
      break;
    }
    if (clock_.now() >= until) {
      throw Error(ErrorCode::kUnavailable, "others take over the journal '" + prefix_ + "' in etcd all the time");
    }
  }
  end_ = co_await number_at(prefix_ + "/end");
  chain_ = co_await chain_at(end_);
  uncertain_ = false;
}

Task<uint64_t> EtcdJournal::number_at(std::string key) {
  const std::optional<StoreEntry> entry = co_await store_.get(key, deadline());
  if (!entry) co_return 0;
  const std::optional<uint64_t> number = parse_offset(entry->value);
  if (!number) damaged(key, "is no number");
  co_return *number;
}

// For reads: they need no fence, but who was taken over must hear of it.
Task<void> EtcdJournal::check_writer() {
  if (is_view_) co_return;
  if (lost_) throw taken_over();
  const std::optional<StoreEntry> writer = co_await store_.get(prefix_ + "/writer", deadline());
  if (writer ? writer->value != token_ : !uncertain_) throw taken_over();
}

// Ends as the writer of a known end, else throws. Call it inside the gate only.
Task<void> EtcdJournal::hold_writer() {
  if (lost_) throw taken_over();
  if (uncertain_) co_await take_over(false);
}

Task<void> EtcdJournal::commit(std::vector<StoreWrite> writes) {
  co_await hold_writer();
  uncertain_ = true;  // also when we are cancelled while we wait
  const std::vector<StoreCondition> ours = created(prefix_ + "/writer", writer_created_);
  const CommitResult result = co_await store_.commit(ours, std::move(writes), deadline());
  if (!result.committed) throw taken_over();
  uncertain_ = false;
}

Task<void> EtcdJournal::commit_in_pieces(std::vector<StoreWrite> writes) {
  for (auto next = writes.begin(); next != writes.end();) {
    std::vector<StoreWrite> piece;
    size_t bytes = 0;
    for (; next != writes.end() && piece.size() < kOperationsMax; ++next) {
      const size_t size = next->value ? next->value->size() : 0;
      if (!piece.empty() && bytes + size > kBytesMax) break;
      bytes += size;
      piece.push_back(std::move(*next));
    }
    const Gate::Pass pass = co_await writing_.enter();
    co_await commit(std::move(piece));
  }
}

Task<uint64_t> EtcdJournal::commit_records(EtcdJournal& self, std::vector<std::string> records) {
  const Gate::Pass pass = co_await self.writing_.enter();
  co_await self.hold_writer();  // the end must be known first
  uint64_t end = self.end_;
  std::string chain = self.chain_;
  std::vector<StoreWrite> writes;
  for (const std::string& record : records) {
    chain = chain_next(chain, ++end, record);
    writes.push_back(put(self.record_key(end), with_chain(chain, record)));
  }
  writes.push_back(put(self.prefix_ + "/end", std::to_string(end)));
  co_await self.commit(std::move(writes));
  self.end_ = end;
  self.chain_ = chain;
  co_await self.write_note();
  co_return end;
}

Task<uint64_t> EtcdJournal::append(std::vector<std::string> records) { return group_.append(std::move(records)); }

Task<std::vector<JournalRecord>> EtcdJournal::read(uint64_t after, size_t count_max) {
  const uint64_t end = co_await number_at(prefix_ + "/end");
  const uint64_t begin = co_await number_at(prefix_ + "/begin");
  std::vector<JournalRecord> records;
  if (after < end) {
    std::string chain = co_await chain_at(after);
    uint64_t expected = std::max<uint64_t>(after + 1, begin);
    while (expected <= end && records.size() < count_max) {
      std::string prefix = record_key(expected);
      prefix.resize(prefix.size() - kScanDigits);
      std::vector<StoreEntry> entries = co_await store_.scan(prefix, deadline());
      const uint64_t stop = std::min(end + 1, (expected / kScanSpan + 1) * kScanSpan);
      for (StoreEntry& entry : entries) {
        if (expected == stop || records.size() == count_max) break;
        if (entry.key < record_key(expected)) continue;
        if (entry.key != record_key(expected)) break;
        JournalRecord record;
        record.offset = expected++;
        const std::string said = take_chain(entry.value);
        record.bytes = std::move(entry.value);
        if (!chain.empty() && said != chain_next(chain, record.offset, record.bytes)) {
          damaged(entry.key, "does not follow from the record before");
        }
        chain = said;
        records.push_back(std::move(record));
      }
      if (expected < stop && records.size() < count_max) {
        // It may have been trimmed since we looked; else it is lost.
        const uint64_t begin_now = co_await number_at(prefix_ + "/begin");
        if (begin_now <= expected) damaged(record_key(expected), "is missing");
        expected = begin_now;
        records.clear();
        chain.clear();
      }
    }
  }
  co_await check_writer();
  co_return records;
}

Task<EtcdJournal::Manifests> EtcdJournal::manifests() {
  const std::string prefix = prefix_ + "/snapshot/";
  const std::vector<StoreEntry> entries = co_await store_.scan(prefix, deadline());
  Manifests found;
  for (const StoreEntry& entry : entries) {
    const std::optional<uint64_t> offset = parse_offset(entry.key.substr(prefix.size()));
    const std::vector<std::string_view> fields = split(entry.value, ' ');
    const auto number = [&fields](size_t at) {
      return at < fields.size() ? parse_offset(fields[at]) : std::optional<uint64_t>();
    };
    if (!offset || fields.size() < 3 || fields.size() > 4 || !number(1) || !number(2))
      damaged(entry.key, "makes no sense");
    Manifest& manifest = found[*offset];
    manifest.group = fields[0];
    manifest.parts = *number(1);
    manifest.bytes = *number(2);
    if (fields.size() == 4) manifest.chain = std::string(fields[3]);
  }
  co_return found;
}

// nullopt: a part is not there.
Task<std::optional<std::string>> EtcdJournal::read_parts(Manifest manifest) {
  std::string bytes;
  for (uint64_t i = 0; i < manifest.parts; ++i) {
    const std::optional<StoreEntry> part = co_await store_.get(part_key(manifest.group, i), deadline());
    if (!part) co_return std::nullopt;
    bytes += part->value;
  }
  if (bytes.size() != manifest.bytes) damaged(part_key(manifest.group, 0), "has the wrong size");
  co_return bytes;
}

Task<std::optional<JournalSnapshot>> EtcdJournal::snapshot(uint64_t offset_max) {
  for (std::string last_group;;) {
    const Manifests all = co_await manifests();
    const auto above = all.upper_bound(offset_max);
    if (above == all.begin()) {
      co_await check_writer();
      co_return std::nullopt;
    }
    const auto& [offset, manifest] = *std::prev(above);
    std::optional<std::string> bytes = co_await read_parts(manifest);
    if (bytes) {
      co_await check_writer();
      JournalSnapshot found;
      found.offset = offset;
      found.bytes = std::move(*bytes);
      co_return found;
    }
    // Trimmed while we read it: then the next look finds another one.
    if (manifest.group == last_group) damaged(snapshot_key(offset), "lacks a part");
    last_group = manifest.group;
  }
}

// The parts lie in a group that is garbage until a snapshot names it.
Task<EtcdJournal::Manifest> EtcdJournal::write_parts(const JournalSnapshot& snapshot) {
  Manifest manifest;
  manifest.group = fmt::format("{}-{}-{}", digits(snapshot.offset), token_, next_group_++);
  manifest.bytes = snapshot.bytes.size();
  manifest.parts = (snapshot.bytes.size() + kPartBytes - 1) / kPartBytes;
  std::vector<StoreWrite> writes{put(prefix_ + "/garbage/" + manifest.group, std::to_string(manifest.parts))};
  for (uint64_t i = 0; i < manifest.parts; ++i) {
    writes.push_back(put(part_key(manifest.group, i), snapshot.bytes.substr(i * kPartBytes, kPartBytes)));
  }
  co_await commit_in_pieces(std::move(writes));
  co_return manifest;
}

Task<void> EtcdJournal::write_snapshot(JournalSnapshot snapshot, uint64_t keep_records) {
  const Gate::Pass pass = co_await snapshotting_.enter();
  const uint64_t end = co_await number_at(prefix_ + "/end");
  co_await check_writer();
  if (snapshot.offset > end) {
    throw Error(ErrorCode::kFailed,
                fmt::format("a snapshot at {} is beyond the journal's end at {}", snapshot.offset, end), prefix_);
  }
  co_await sweep_garbage();  // of a writer that died
  const Manifest manifest = co_await write_parts(snapshot);

  Manifests all = co_await manifests();
  std::vector<uint64_t> offsets{snapshot.offset};
  for (const auto& [offset, other] : all) offsets.push_back(offset);
  const JournalTrim trim = plan_trim(offsets, snapshot.offset, keep_records);
  std::vector<StoreWrite> writes;
  const std::string chain = co_await chain_at(snapshot.offset);
  std::string message = fmt::format("{} {} {}", manifest.group, manifest.parts, manifest.bytes);
  if (!chain.empty()) message += " " + chain;
  writes.push_back(put(snapshot_key(snapshot.offset), message));
  writes.push_back(erase(prefix_ + "/garbage/" + manifest.group));
  for (const auto& [offset, other] : all) {
    if (offset != snapshot.offset && offset >= trim.snapshots_below) continue;
    if (offset != snapshot.offset) writes.push_back(erase(snapshot_key(offset)));
    writes.push_back(put(prefix_ + "/garbage/" + other.group, std::to_string(other.parts)));
  }
  co_await commit_in_pieces(std::move(writes));
  co_await trim_records(trim.records_below);
  co_await sweep_garbage();
}

Task<void> EtcdJournal::sweep_garbage() {
  const std::string prefix = prefix_ + "/garbage/";
  const std::vector<StoreEntry> entries = co_await store_.scan(prefix, deadline());
  std::vector<StoreWrite> writes;
  for (const StoreEntry& entry : entries) {
    const std::optional<uint64_t> parts = parse_offset(entry.value);
    if (!parts) damaged(entry.key, "makes no sense");
    for (uint64_t i = 0; i < *parts; ++i) writes.push_back(erase(part_key(entry.key.substr(prefix.size()), i)));
    writes.push_back(erase(entry.key));
  }
  co_await commit_in_pieces(std::move(writes));
}

// In steps, each with the new beginning: after a crash the next trim goes on there.
Task<void> EtcdJournal::trim_records(uint64_t below) {
  uint64_t begin = co_await number_at(prefix_ + "/begin");
  begin = std::max<uint64_t>(begin, 1);
  while (begin < below) {
    const uint64_t stop = std::min<uint64_t>(below, begin + kOperationsMax - 1);
    std::vector<StoreWrite> writes;
    for (; begin < stop; ++begin) writes.push_back(erase(record_key(begin)));
    writes.push_back(put(prefix_ + "/begin", std::to_string(begin)));
    co_await commit_in_pieces(std::move(writes));
  }
}

}  // namespace rubato::os
