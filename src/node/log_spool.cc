#include "node/log_spool.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "agent/worker_output.h"
#include "core/error.h"
#include "core/text.h"

namespace rubato::node {

namespace {

constexpr uint64_t kSegmentBytes = uint64_t{4} << 20;
constexpr size_t kBufferBytes = size_t{64} << 10;
// Without a head the spool leaves this part of the disk to the workers' own files.
constexpr uint64_t kFreeShare = 10;
// The files of outputs keep about this much that is safe in segments: giving back less is not worth the call.
constexpr uint64_t kGiveBackBytes = uint64_t{1} << 20;
constexpr size_t kReadBytes = size_t{256} << 10;
// A head whose disk is full is asked so often whether there is room again.
constexpr Duration kRetry = 1s;

constexpr std::string_view kSegmentEnd = ".lines";
constexpr const char* kMarks = "/marks.json";
constexpr const char* kOwner = "/owner";

// A record is this, then the text. The file is read on the machine that wrote it: no byte order needed.
struct RecordHead {
  uint64_t sequence = 0;
  int64_t time_us = 0;
  uint64_t generation = 0;
  uint64_t output_end = 0;  // in the file of the worker's output; 0: it has none
  int32_t rank = 0;
  uint32_t size_and_stream = 0;  // size * 2 + is_stderr, and flags
};
static_assert(sizeof(RecordHead) == 40);
constexpr uint32_t kIsMissing = uint32_t{1} << 31;  // the text begins with two numbers
constexpr uint32_t kContinues = uint32_t{1} << 30;  // LogLine::continues

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// "12 340 rubato: 12 lines ...": how many lines and bytes this line stands for.
void read_missing(elastic::LogLine& line) {
  const size_t first = line.text.find(' ');
  const size_t second = first == std::string::npos ? first : line.text.find(' ', first + 1);
  if (second == std::string::npos) return;
  read_number(std::string_view(line.text).substr(0, first), line.missing_lines);
  read_number(std::string_view(line.text).substr(first + 1, second - first - 1), line.missing_bytes);
  line.text.erase(0, second + 1);
}

// The record at the beginning of `bytes`; nullopt when it is not whole.
std::optional<elastic::LogLine> read_record(std::string_view bytes, size_t& size, uint64_t* output_end = nullptr) {
  RecordHead head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  const size_t text_size = (head.size_and_stream & ~(kIsMissing | kContinues)) / 2;
  if (text_size > elastic::kLogTextMax || bytes.size() - sizeof head < text_size) return std::nullopt;
  elastic::LogLine line;
  line.sequence = head.sequence;
  line.time_us = head.time_us;
  line.generation = head.generation;
  line.rank = head.rank;
  line.is_stderr = (head.size_and_stream & 1) != 0;
  line.continues = (head.size_and_stream & kContinues) != 0;
  line.text = bytes.substr(sizeof head, text_size);
  if ((head.size_and_stream & kIsMissing) != 0) read_missing(line);
  size = sizeof head + text_size;
  if (output_end) *output_end = head.output_end;
  return line;
}

// "3.17.err": rank 17 in generation 3.
std::string output_name(const OutputId& id) {
  return fmt::format("{}.{}.{}", id.generation, id.rank, id.is_stderr ? "err" : "out");
}

std::optional<OutputId> output_of_name(const std::string& name) {
  const auto parts = split(name, '.');
  OutputId id;
  if (parts.size() != 3 || !read_number(parts[0], id.generation) || !read_number(parts[1], id.rank)) return {};
  id.is_stderr = parts[2] == "err";
  if (output_name(id) != name) return std::nullopt;
  return id;
}

std::string missing_text(int rank, uint64_t lines, uint64_t bytes) {
  const bool one = lines == 1;
  return fmt::format("rubato: {} line{} of rank {} ({} bytes) {} missing here: the disk of the node was full", lines,
                     one ? "" : "s", rank, bytes, one ? "is" : "are");
}

elastic::LogLine missing_line(uint64_t sequence, int64_t time_us, std::pair<Generation, int> who, uint64_t lines,
                              uint64_t bytes) {
  elastic::LogLine line;
  line.sequence = sequence;
  line.time_us = time_us;
  line.generation = who.first;
  line.rank = who.second;
  line.is_stderr = true;
  line.missing_lines = lines;
  line.missing_bytes = bytes;
  line.text = missing_text(who.second, lines, bytes);
  return line;
}

}  // namespace

LogSpool::LogSpool(World& world, std::string folder, std::function<void()> on_lines, uint64_t first_sequence,
                   AgentId owner)
    : world_(world), folder_(std::move(folder)), on_lines_(std::move(on_lines)), next_sequence_(first_sequence) {
  const bool fresh = !world_.files.exists(folder_);
  try {
    world_.files.make_folders(folder_);
  } catch (const Error&) {
    // A full disk: whoever has lines for it tries again. The job's own folder has no room either, and that is told.
  }
  if (const auto known = world_.files.read(folder_ + kOwner)) owner_.value = trim(*known);
  adopt();
  if (!fresh || owner.value.empty()) return;
  owner_ = std::move(owner);
  try {
    world_.files.write_atomically(folder_ + kOwner, owner_.value);
  } catch (const Error&) {
    // A full disk keeps no lines either.
  }
}

void LogSpool::adopt() {
  if (!world_.files.exists(folder_)) return;
  adopt_marks();
  for (const Files::Entry& entry : world_.files.list(folder_)) adopt_segment(entry);
  std::ranges::sort(segments_, {}, &Segment::number);
  if (!segments_.empty()) read_ = acked_ = Place{segments_.front().number, 0};
  // Numbers of segments begin anew where all were acknowledged.
  for (Held& held : held_) held.before_segment = std::min(held.before_segment, next_segment());
  adopt_outputs();
}

// Only those that marks do not know of are read: a spool may have grown to gigabytes while no head was there.
void LogSpool::adopt_segment(const Files::Entry& entry) {
  uint64_t number = 0;
  const std::string& name = entry.name;
  const std::string_view digits =
      std::string_view(name).substr(0, name.size() - std::min(name.size(), kSegmentEnd.size()));
  if (!name.ends_with(kSegmentEnd) || !read_number(digits, number)) return;
  Segment segment{number, 0};
  if (number < marked_segment_) {
    segment.size = entry.size;
  } else {
    const std::string bytes = world_.files.read(folder_ + "/" + name).value_or("");
    std::string_view rest = bytes;
    size_t size = 0;
    uint64_t end = 0;
    while (const auto line = read_record(rest, size, &end)) {
      next_sequence_ = std::max(next_sequence_, line->sequence + 1);
      if (end > 0) {
        Output& output = outputs_[{line->generation, line->rank, line->is_stderr}];
        output.safe = std::max(output.safe, end);
      }
      rest.remove_prefix(size);
      segment.size += size;
    }
  }
  added_bytes_ += segment.size;
  segments_.push_back(segment);
}

void LogSpool::adopt_marks() {
  using nlohmann::json;
  const json marks = json::parse(world_.files.read(folder_ + kMarks).value_or(""), nullptr, false);
  if (!marks.is_object()) return;
  next_sequence_ = std::max(next_sequence_, marks.value("next", uint64_t{1}));
  marked_segment_ = marks.value("segment", uint64_t{0});
  const json missing = marks.value("missing", json::array());
  for (const json& one : missing) {
    if (!one.is_array() || one.size() != 4) continue;
    missing_[{one[0].get<Generation>(), one[1].get<int>()}] = {one[2].get<uint64_t>(), one[3].get<uint64_t>()};
  }
  for (const json& one : marks.value("held", json::array())) {
    if (!one.is_array() || one.size() != 7) continue;
    const auto count = [&one](size_t place) { return one[place].get<uint64_t>(); };
    held_.push_back(
        {missing_line(count(0), one[1].get<int64_t>(), {count(2), one[3].get<int>()}, count(4), count(5)), count(6)});
  }
  const json outputs = marks.value("outputs", json::object());
  for (const auto& [name, safe] : outputs.items()) {
    const std::optional<OutputId> id = output_of_name(name);
    if (!id || !safe.is_number_unsigned()) continue;
    Output& output = outputs_[*id];
    output.safe = std::max(output.safe, safe.get<uint64_t>());
  }
}

void LogSpool::adopt_outputs() {
  const std::string folder = folder_ + kOutputs;
  std::map<OutputId, std::string> found;  // in the order of generations and ranks
  if (world_.files.exists(folder)) {
    for (const Files::Entry& entry : world_.files.list(folder)) {
      const std::optional<OutputId> id = output_of_name(entry.name);
      if (id && entry.kind == Files::Entry::Kind::kFile) found[*id] = folder + "/" + entry.name;
    }
  }
  for (const auto& [id, path] : found) adopt_output(id, path);
  if (found.empty()) {
    outputs_.clear();
    missing_.clear();  // it was told of when the workers had ended
  } else {
    settle();
    finish_outputs();
  }
}

void LogSpool::adopt_output(const OutputId& id, const std::string& path) {
  Output& output = outputs_[id];
  const uint64_t begin = output.added = output.skipped = output.given_back = output.safe;
  const WallTime time = world_.files.modified(path).value_or(world_.clock.wall());
  agent::LineSplitter splitter;
  const auto take = [&](std::vector<agent::LineSplitter::Line> lines) {
    for (auto& line : lines) add_line(id, agent::without_return(line), begin + line.end, line.continues, time);
  };
  try {
    for (uint64_t at = begin;;) {
      const std::string bytes = world_.files.read_range(path, at, kReadBytes);
      if (bytes.empty()) break;
      at += bytes.size();
      take(splitter.take(bytes));
    }
  } catch (const Error&) {
    // A disk that cannot be read: what was read of it counts.
  }
  take(splitter.flush());
}

std::string LogSpool::path(uint64_t segment) const { return fmt::format("{}/{:012}{}", folder_, segment, kSegmentEnd); }

std::string LogSpool::output_path(const OutputId& id) const { return folder_ + kOutputs + "/" + output_name(id); }

std::string LogSpool::begin_output(const OutputId& id) {
  if (outputs_.empty()) {
    try {
      world_.files.make_folders(folder_ + kOutputs);
    } catch (const Error&) {
      // A full disk: its lines will only be passed on.
    }
  }
  outputs_[id] = Output();
  // The number of the first line that only its file has must be known: a head takes no number twice.
  if (marked_sequence_ != next_sequence_) write_marks();
  return output_path(id);
}

void LogSpool::finish_outputs() {
  flush();
  for (const auto& [id, output] : outputs_) world_.files.remove_tree(output_path(id));
  outputs_.clear();
  if (!missing_.empty()) on_lines_();  // from memory now
}

// In one step, and without waiting for the disk: this is against a killed agent, not against a power cut.
bool LogSpool::write_marks() {
  nlohmann::json outputs = nlohmann::json::object();
  for (const auto& [id, output] : outputs_) outputs[output_name(id)] = output.safe;
  nlohmann::json missing = nlohmann::json::array();
  for (const auto& [who, count] : missing_) missing.push_back({who.first, who.second, count.lines, count.bytes});
  nlohmann::json held = nlohmann::json::array();
  for (const auto& [line, before_segment] : held_)
    held.push_back({line.sequence, line.time_us, line.generation, line.rank, line.missing_lines, line.missing_bytes,
                    before_segment});
  const uint64_t segment = segments_.empty() ? 0 : segments_.back().number;
  const nlohmann::json marks = {{"next", next_sequence_},
                                {"segment", segment},
                                {"missing", std::move(missing)},
                                {"held", std::move(held)},
                                {"outputs", std::move(outputs)}};
  const std::string draft = folder_ + kMarks + ".draft";
  try {
    world_.files.remove_tree(draft);
    world_.files.open_append(draft)->append(marks.dump() + "\n");
    world_.files.move(draft, folder_ + kMarks);
  } catch (const Error&) {
    return false;
  }
  marked_sequence_ = next_sequence_;
  return true;
}

void LogSpool::give_back_space() {
  for (auto& [id, output] : outputs_) {
    if (output.safe - output.given_back < kGiveBackBytes) continue;
    world_.files.give_back(output_path(id), output.safe);
    output.given_back = output.safe;
  }
}

LogSpool::Place LogSpool::end() const {
  if (segments_.empty()) return read_;
  return {segments_.back().number, segments_.back().size};
}

uint64_t LogSpool::next_segment() const { return segments_.empty() ? read_.segment + 1 : segments_.back().number + 1; }

void LogSpool::begin_segment() {
  const uint64_t number = next_segment();
  world_.files.make_folders(folder_);
  appender_ = world_.files.open_append(path(number));
  if (segments_.empty()) read_ = acked_ = Place{number, 0};
  segments_.push_back(Segment{number, 0});
  // The ones before need not be read by the next agent. Without room for this they are.
  if (segments_.size() > 1) write_marks();
}

bool LogSpool::has_room(bool head_takes) {
  if (unacked_bytes() + buffer_.size() <= kSpoolBytesMax) return true;
  if (head_takes && !retry_at_) return false;
  const std::optional<Files::Room> room = world_.files.room(folder_);
  return !room || room->free > room->size / kFreeShare;
}

void LogSpool::add(Generation generation, int rank, bool is_stderr, std::string text, uint64_t end, bool continues) {
  add_line(OutputId{generation, rank, is_stderr}, std::move(text), end, continues, world_.clock.wall());
}

void LogSpool::add_line(const OutputId& id, std::string text, uint64_t end, bool continues, WallTime time) {
  if (text.size() > elastic::kLogTextMax) text.resize(elastic::kLogTextMax);
  if (!missing_.empty()) settle();
  put(id, text, end, continues ? kContinues : 0, time);
}

void LogSpool::settle() {
  if (missing_.empty()) return;
  for (const auto& [who, count] : std::exchange(missing_, {}))
    put_missing(who.first, who.second, count.lines, count.bytes);
  flush();
  if (!outputs_.empty()) mark_dropped();
}

void LogSpool::put_missing(Generation generation, int rank, uint64_t lines, uint64_t bytes) {
  const std::string text = fmt::format("{} {} {}", lines, bytes, missing_text(rank, lines, bytes));
  put(OutputId{generation, rank, true}, text, 0, kIsMissing, world_.clock.wall());
}

void LogSpool::put(const OutputId& id, std::string_view text, uint64_t end, uint32_t flags, WallTime time) {
  const bool was_idle = buffer_.empty();
  RecordHead head;
  head.sequence = next_sequence_++;
  head.time_us = time.time_since_epoch().count();
  head.generation = id.generation;
  head.output_end = end;
  head.rank = id.rank;
  head.size_and_stream = static_cast<uint32_t>(text.size() * 2 + (id.is_stderr ? 1 : 0)) | flags;
  buffer_.append(reinterpret_cast<const char*>(&head), sizeof head);
  buffer_ += text;
  const auto output = outputs_.find(id);
  if (end > 0 && output != outputs_.end()) output->second.added = output->second.skipped = end;
  if (buffer_.size() >= kBufferBytes) flush();
  if (was_idle) on_lines_();
}

void LogSpool::flush() {
  if (buffer_.empty()) return;
  try {
    if (!appender_ || segments_.back().size >= kSegmentBytes) begin_segment();
    appender_->append(buffer_);
    segments_.back().size += buffer_.size();
    added_bytes_ += buffer_.size();
    no_room_ = false;
    for (auto& [id, output] : outputs_) output.safe = std::max(output.safe, output.added);
    give_back_space();
  } catch (const Error&) {
    drop_buffer();
    no_room_ = true;
  }
  buffer_.clear();
}

// The disk has taken the first records of it, if any.
void LogSpool::drop_buffer() {
  uint64_t taken = 0;
  if (appender_) {
    try {
      const uint64_t size = world_.files.open_read(path(segments_.back().number))->size();
      taken = size - std::min(size, segments_.back().size);
    } catch (const Error&) {
      taken = 0;
    }
  }
  // What was written of a record is beyond the segment's known size; the next lines begin another one.
  appender_.reset();
  std::string_view rest = buffer_;
  size_t size = 0;
  uint64_t kept = 0;
  uint64_t end = 0;
  while (const auto line = read_record(rest, size, &end)) {
    rest.remove_prefix(size);
    if (kept + size <= taken && kept + size + rest.size() == buffer_.size()) {
      kept += size;
      const auto output = outputs_.find({line->generation, line->rank, line->is_stderr});
      if (end > 0 && output != outputs_.end()) output->second.safe = std::max(output->second.safe, end);
      continue;
    }
    Missing& missing = missing_[{line->generation, line->rank}];
    missing.lines += line->missing_lines > 0 ? line->missing_lines : 1;
    missing.bytes += line->missing_lines > 0 ? line->missing_bytes : line->text.size();
    dropped_bytes_ += line->text.size();
  }
  if (kept > 0) {
    segments_.back().size += kept;
    added_bytes_ += kept;
  }
  // No record tells of them. Without this their bytes would stay on disk, and more and more of them.
  if (dropped_bytes_ >= kGiveBackBytes) mark_dropped();
}

// What was given up counts as dealt with: it does not come back with the next agent.
bool LogSpool::mark_dropped() {
  const std::map<OutputId, Output> before = outputs_;
  for (auto& [other, one] : outputs_) one.safe = std::max(one.safe, one.skipped);
  if (!write_marks()) {
    outputs_ = before;
    return false;
  }
  dropped_bytes_ = 0;
  give_back_space();
  return true;
}

void LogSpool::next_segment_if_read() {
  for (size_t i = 0; i + 1 < segments_.size(); ++i) {
    if (segments_[i].number == read_.segment && read_.offset >= segments_[i].size) {
      read_ = Place{segments_[i + 1].number, 0};
    }
  }
}

std::vector<elastic::LogLine> LogSpool::take(size_t bytes_max) {
  flush();
  const Instant now = world_.clock.now();
  if (retry_at_ && now < *retry_at_) return {};
  while (true) {
    next_segment_if_read();
    const auto segment = std::ranges::find(segments_, read_.segment, &Segment::number);
    const bool all_read = segment == segments_.end() || read_.offset >= segment->size;
    if (all_read && !missing_.empty() && no_room_ && outputs_.empty()) hold_missing();
    // In the order of their numbers: the head takes none that is below one that it has.
    const bool is_held = held_sent_ < held_.size() && (all_read || segment->number >= held_[held_sent_].before_segment);
    if (all_read && !is_held) return {};
    std::vector<elastic::LogLine> lines = is_held ? take_from_memory() : take_from(*segment, bytes_max);
    if (!lines.empty()) {
      sent_sequence_ = lines.back().sequence;
      if (retry_at_) retry_at_ = now + kRetry;
      return lines;
    }
    acked_up_to(acked_sequence_);
  }
}

// No worker is alive, and the disk takes nothing: the job must not end without these.
void LogSpool::hold_missing() {
  const int64_t now_us = world_.clock.wall().time_since_epoch().count();
  for (const auto& [who, count] : std::exchange(missing_, {}))
    held_.push_back({missing_line(next_sequence_++, now_us, who, count.lines, count.bytes), next_segment()});
  // An agent that comes next sends them under the same numbers, and gives these to no other line. A disk that has no
  // room for this either leaves the moment until the head has them.
  (void)write_marks();
}

std::vector<elastic::LogLine> LogSpool::take_from_memory() {
  std::vector<elastic::LogLine> lines;
  const uint64_t before_segment = held_[held_sent_].before_segment;
  while (held_sent_ < held_.size() && held_[held_sent_].before_segment == before_segment &&
         lines.size() < elastic::kLogLinesMax)
    lines.push_back(held_[held_sent_++].line);
  return lines;
}

// One batch, without the lines that the head is known to have.
std::vector<elastic::LogLine> LogSpool::take_from(const Segment& segment, size_t bytes_max) {
  std::vector<elastic::LogLine> lines;
  // At least one whole record.
  const uint64_t want = std::max<uint64_t>(bytes_max, sizeof(RecordHead) + elastic::kLogTextMax);
  const size_t size_max = static_cast<size_t>(std::min<uint64_t>(segment.size - read_.offset, want));
  std::string bytes;
  try {
    bytes = world_.files.read_range(path(segment.number), read_.offset, size_max);
  } catch (const Error&) {
    bytes.clear();
  }
  std::string_view rest = bytes;
  Batch batch;
  size_t size = 0;
  while (lines.size() < elastic::kLogLinesMax && (batch.bytes == 0 || batch.bytes + sizeof(RecordHead) < bytes_max)) {
    auto line = read_record(rest, size);
    if (!line) break;
    rest.remove_prefix(size);
    batch.bytes += size;
    batch.last_sequence = line->sequence;
    // An earlier connection brought these, and a later one tells so.
    if (line->sequence > acked_sequence_) lines.push_back(std::move(*line));
  }
  if (batch.bytes == 0) {
    // A disk became full in the middle of a record, or somebody has changed the file: what is in it cannot be sent.
    batch.bytes = segment.size - read_.offset;
    batch.last_sequence = acked_sequence_;
  }
  read_.offset += batch.bytes;
  batch.end = read_;
  in_flight_bytes_ += batch.bytes;
  in_flight_.push_back(batch);
  return lines;
}

void LogSpool::rewind() {
  flush();
  in_flight_.clear();
  in_flight_bytes_ = 0;
  sent_sequence_ = 0;
  held_sent_ = 0;
  retry_at_.reset();
  read_ = acked_;
  if (!all_kept()) on_lines_();
}

void LogSpool::refused(uint64_t sequence) {
  acked_up_to(sequence);
  rewind();
  retry_at_ = world_.clock.now() + kRetry;
}

void LogSpool::acked(uint64_t sequence) {
  retry_at_.reset();
  acked_up_to(sequence);
}

void LogSpool::acked_up_to(uint64_t sequence) {
  acked_sequence_ = std::max(acked_sequence_, sequence);
  while (!in_flight_.empty() && in_flight_.front().last_sequence <= acked_sequence_) {
    acked_bytes_ += in_flight_.front().bytes;
    in_flight_bytes_ -= in_flight_.front().bytes;
    acked_ = in_flight_.front().end;
    in_flight_.pop_front();
  }
  while (!held_.empty() && held_.front().line.sequence <= acked_sequence_) {
    held_.pop_front();
    held_sent_ -= std::min<size_t>(held_sent_, 1);
  }
  drop_acked_segments();
}

void LogSpool::drop_acked_segments() {
  while (!segments_.empty()) {
    const Segment& first = segments_.front();
    const bool done = acked_.segment > first.number || (acked_.segment == first.number && acked_.offset >= first.size);
    const bool in_use = segments_.size() == 1 && appender_ && first.size < kSegmentBytes;
    if (!done || in_use) return;
    if (!outputs_.empty() && !write_marks()) return;  // what only this segment knows
    world_.files.remove_tree(path(first.number));
    if (segments_.size() == 1) {
      appender_.reset();
    } else if (acked_.segment == first.number) {
      acked_ = Place{segments_[1].number, 0};
    }
    if (read_.segment == first.number) read_ = acked_;
    segments_.pop_front();
  }
}

bool LogSpool::all_kept() const {
  // While workers print, what a full disk cannot even tell of is told with the next line that it takes.
  const bool told = missing_.empty() || (no_room_ && !outputs_.empty());
  return buffer_.empty() && told && held_.empty() && unacked_bytes() == 0;
}

void LogSpool::remove() {
  appender_.reset();
  segments_.clear();
  outputs_.clear();
  buffer_.clear();
  missing_.clear();
  held_.clear();
  held_sent_ = 0;
  world_.files.remove_tree(folder_);
}

}  // namespace rubato::node
