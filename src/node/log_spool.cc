#include "node/log_spool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/error.h"

namespace rubato::node {

namespace {

constexpr uint64_t kSegmentBytes = uint64_t{4} << 20;
constexpr size_t kBufferBytes = size_t{64} << 10;
// Dropping goes on until there is this much room again, so that it is told once and not for every other line.
constexpr uint64_t kRoomBytes = kSpoolBytesMax / 4;

// A record is this, then the text. The file is read on the machine that wrote it: no byte order needed.
struct RecordHead {
  uint64_t sequence = 0;
  int64_t time_us = 0;
  uint64_t generation = 0;
  int32_t rank = 0;
  uint32_t size_and_stream = 0;  // size * 2 + is_stderr
};
static_assert(sizeof(RecordHead) == 32);

// The record at the beginning of `bytes`; nullopt when it is not whole.
std::optional<elastic::LogLine> read_record(std::string_view bytes, size_t& size) {
  RecordHead head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  const size_t text_size = head.size_and_stream / 2;
  if (text_size > elastic::kLogTextMax || bytes.size() - sizeof head < text_size) return std::nullopt;
  elastic::LogLine line;
  line.sequence = head.sequence;
  line.time_us = head.time_us;
  line.generation = head.generation;
  line.rank = head.rank;
  line.is_stderr = (head.size_and_stream & 1) != 0;
  line.text = bytes.substr(sizeof head, text_size);
  size = sizeof head + text_size;
  return line;
}

}  // namespace

LogSpool::LogSpool(World& world, std::string folder, std::function<void()> on_lines, uint64_t first_sequence)
    : world_(world), folder_(std::move(folder)), on_lines_(std::move(on_lines)), next_sequence_(first_sequence) {
  world_.files.make_folders(folder_);
  adopt();
}

void LogSpool::adopt() {
  for (const Files::Entry& entry : world_.files.list(folder_)) {
    const bool number = !entry.name.empty() && entry.name.size() <= 12 &&
                        std::ranges::all_of(entry.name, [](char c) { return c >= '0' && c <= '9'; });
    if (!number) continue;
    Segment segment{std::stoull(entry.name), 0};
    const std::string bytes = world_.files.read(folder_ + "/" + entry.name).value_or("");
    std::string_view rest = bytes;
    size_t size = 0;
    while (const auto line = read_record(rest, size)) {
      next_sequence_ = std::max(next_sequence_, line->sequence + 1);
      rest.remove_prefix(size);
      segment.size += size;
    }
    added_bytes_ += segment.size;
    segments_.push_back(segment);
  }
  std::ranges::sort(segments_, {}, &Segment::number);
  if (!segments_.empty()) read_ = acked_ = Place{segments_.front().number, 0};
}

std::string LogSpool::path(uint64_t segment) const { return fmt::format("{}/{:012}", folder_, segment); }

LogSpool::Place LogSpool::end() const {
  if (segments_.empty()) return read_;
  return {segments_.back().number, segments_.back().size};
}

void LogSpool::begin_segment() {
  const uint64_t number = segments_.empty() ? read_.segment + 1 : segments_.back().number + 1;
  appender_ = world_.files.open_append(path(number));
  if (segments_.empty()) read_ = acked_ = Place{number, 0};
  segments_.push_back(Segment{number, 0});
}

void LogSpool::add(Generation generation, int rank, bool is_stderr, std::string text) {
  last_generation_ = generation;
  last_rank_ = rank;
  if (text.size() > elastic::kLogTextMax) text.resize(elastic::kLogTextMax);
  const uint64_t waiting = unacked_bytes() + buffer_.size();
  const uint64_t bound = dropped_ > 0 ? kSpoolBytesMax - kRoomBytes : kSpoolBytesMax;
  if (waiting + text.size() > bound) {
    ++dropped_;
    return;
  }
  if (dropped_ > 0) settle();
  put(generation, rank, is_stderr, text);
}

void LogSpool::settle() {
  if (dropped_ == 0) return;
  const std::string words =
      fmt::format("rubato: {} lines are missing here: they came faster than they could be passed on", dropped_);
  dropped_ = 0;
  put(last_generation_, last_rank_, true, words);
}

void LogSpool::put(Generation generation, int rank, bool is_stderr, std::string_view text) {
  const bool was_idle = buffer_.empty();
  RecordHead head;
  head.sequence = next_sequence_++;
  head.time_us = world_.clock.wall().time_since_epoch().count();
  head.generation = generation;
  head.rank = rank;
  head.size_and_stream = static_cast<uint32_t>(text.size() * 2 + (is_stderr ? 1 : 0));
  buffer_.append(reinterpret_cast<const char*>(&head), sizeof head);
  buffer_ += text;
  ++buffered_lines_;
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
  } catch (const Error&) {
    // What was written of it is beyond the segment's known size; the next lines begin another one.
    appender_.reset();
    dropped_ += buffered_lines_;
    no_room_ = true;
  }
  buffer_.clear();
  buffered_lines_ = 0;
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
  next_segment_if_read();
  std::vector<elastic::LogLine> lines;
  const auto segment = std::ranges::find(segments_, read_.segment, &Segment::number);
  if (segment == segments_.end() || read_.offset >= segment->size) return lines;
  // At least one whole record.
  const uint64_t want = std::max<uint64_t>(bytes_max, sizeof(RecordHead) + elastic::kLogTextMax);
  const size_t size_max = static_cast<size_t>(std::min<uint64_t>(segment->size - read_.offset, want));
  std::string bytes;
  try {
    bytes = world_.files.read_range(path(segment->number), read_.offset, size_max);
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
    // Somebody has changed the file: what is in it cannot be sent.
    batch.bytes = segment->size - read_.offset;
    batch.last_sequence = acked_sequence_;
  }
  read_.offset += batch.bytes;
  batch.end = read_;
  in_flight_bytes_ += batch.bytes;
  in_flight_.push_back(batch);
  if (lines.empty()) {
    acked(acked_sequence_);
    return take(bytes_max);
  }
  return lines;
}

void LogSpool::rewind() {
  flush();
  in_flight_.clear();
  in_flight_bytes_ = 0;
  read_ = acked_;
  if (!all_sent()) on_lines_();
}

void LogSpool::acked(uint64_t sequence) {
  acked_sequence_ = std::max(acked_sequence_, sequence);
  while (!in_flight_.empty() && in_flight_.front().last_sequence <= acked_sequence_) {
    acked_bytes_ += in_flight_.front().bytes;
    in_flight_bytes_ -= in_flight_.front().bytes;
    acked_ = in_flight_.front().end;
    in_flight_.pop_front();
  }
  drop_acked_segments();
}

void LogSpool::drop_acked_segments() {
  while (!segments_.empty()) {
    const Segment& first = segments_.front();
    const bool done = acked_.segment > first.number || (acked_.segment == first.number && acked_.offset >= first.size);
    const bool in_use = segments_.size() == 1 && appender_ && first.size < kSegmentBytes;
    if (!done || in_use) return;
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

bool LogSpool::all_sent() {
  next_segment_if_read();
  // What a full disk cannot even tell of must not keep a job from ending.
  return buffer_.empty() && (dropped_ == 0 || no_room_) && read_ == end();
}

void LogSpool::remove() {
  appender_.reset();
  segments_.clear();
  buffer_.clear();
  world_.files.remove_tree(folder_);
}

}  // namespace rubato::node
