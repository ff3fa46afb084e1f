#include "agent/tee.h"

#include <fmt/format.h>

#include <algorithm>

namespace rubato::agent {

namespace {

constexpr size_t kBacklogBytesMax = size_t{256} << 10;  // of one worker, for the console
constexpr size_t kConsoleBytesMax = size_t{64} << 10;   // given to the console ahead of its reader
constexpr size_t kFilePendingMax = size_t{1} << 20;
constexpr Duration kPartialShown = 300ms;  // a prompt, or a progress bar that waits, is shown after this time
constexpr Duration kFilesEndMax = 5s;      // a disk that hangs does not hold the worker's end for ever
constexpr Duration kWaitSlice = 60s;       // waits without an end are cut into these

}  // namespace

void ConsoleLines::end_line(std::string& out) {
  out += prefix_;
  out += std::exchange(rest_, {});
  out += '\n';
}

std::string ConsoleLines::take(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of("\n\r");
    std::string_view piece = bytes.substr(0, end);
    if (!piece.empty()) shown_ = false;
    while (rest_.size() + piece.size() > LineSplitter::kLineMax) {
      const size_t room = LineSplitter::kLineMax - rest_.size();
      rest_ += piece.substr(0, room);
      piece.remove_prefix(room);
      end_line(out);
      shown_ = piece.empty();
    }
    rest_ += piece;
    if (end == std::string_view::npos) return out;
    const bool is_return = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    // "\r" shows what there is; "\n" after it, or after what was shown without an end, is no line of its own.
    if (!rest_.empty()) {
      end_line(out);
      shown_ = is_return;
    } else if (!is_return && !std::exchange(shown_, false)) {
      end_line(out);
    }
  }
  return out;
}

std::string ConsoleLines::flush() {
  std::string out;
  if (rest_.empty()) return out;
  end_line(out);
  shown_ = true;
  return out;
}

Tee::Tee(World& world, Outlets& outlets, Process& process, TeeSpec spec, std::function<void()> on_failure)
    : world_(world),
      outlets_(outlets),
      process_(process),
      spec_(std::move(spec)),
      out_(false, spec_.out, spec_.prefix),
      err_(true, spec_.err, spec_.prefix),
      on_failure_(std::move(on_failure)),
      changed_(world.clock.loop()),
      written_(world.clock.loop()) {}

Task<void> Tee::run() {
  Scope helpers(world_.clock.loop());
  try {
    open(out_);
    open(err_);
  } catch (const Error& error) {
    fail(error.message);
  }
  helpers.spawn(print());
  helpers.spawn(watch_files());
  while (true) {
    const bool more = co_await take_next();
    if (!more) break;
    co_await wait_for_room();
  }
  show_partial();
  for (Stream* stream : {&out_, &err_}) filter(*stream, stream->whole.flush());
  hurry();
  co_await finish_files();
}

void Tee::open(Stream& stream) {
  if (!stream.plan.file.empty()) stream.file = outlets_.open(stream.plan.file);
  if (!stream.plan.filters.empty()) stream.filtered = outlets_.open(stream.plan.filtered_file);
}

Task<bool> Tee::take_next() {
  Channel<OutputChunk>& output = process_.output();
  std::optional<OutputChunk> chunk;
  if (out_.lines.partial() || err_.lines.partial()) {
    const Instant deadline = world_.clock.now() + kPartialShown;
    auto in_time = co_await with_deadline(world_.clock.loop(), deadline, output.pop());
    if (!in_time) {
      show_partial();
      co_return true;
    }
    chunk = std::move(*in_time);
  } else {
    chunk = co_await output.pop();
  }
  if (!chunk) co_return false;
  take(chunk->is_stderr ? err_ : out_, chunk->bytes);
  co_return true;
}

void Tee::take(Stream& stream, const std::string& bytes) {
  if (stream.file) stream.file->write(bytes);
  if (stream.filtered) filter(stream, stream.whole.take(bytes));
  if (stream.plan.show) show(stream, stream.lines.take(bytes));
  written_.notify();
}

void Tee::filter(Stream& stream, const std::vector<LineSplitter::Line>& lines) {
  if (!stream.filtered) return;
  std::string text;
  for (const LineSplitter::Line& line : lines) {
    const bool wanted = std::ranges::any_of(
        stream.plan.filters, [&](const std::string& word) { return line.text.find(word) != std::string::npos; });
    if (wanted) text += spec_.prefix + line.text + "\n";
  }
  stream.filtered->write(text);
}

void Tee::show(const Stream& stream, std::string text) {
  if (text.empty()) return;
  if (hurry_) {
    console(stream.is_stderr).write(text);
    return;
  }
  backlog_bytes_ += text.size();
  backlog_.push_back({stream.is_stderr, std::move(text)});
  changed_.notify();
}

void Tee::show_partial() {
  show(out_, out_.lines.flush());
  show(err_, err_.lines.flush());
}

Task<void> Tee::wait_for_room() {
  while (!hurry_ && backlog_bytes_ > kBacklogBytesMax) co_await changed_.wait();
  for (Outlet* outlet : files()) {
    while (!hurry_ && outlet->pending() > kFilePendingMax) {
      co_await outlet->drained(kFilePendingMax, world_.clock.now() + kPartialShown);
    }
  }
}

Task<void> Tee::print() {
  while (true) {
    while (backlog_.empty()) co_await changed_.wait();
    const bool is_stderr = backlog_.front().is_stderr;
    const Instant deadline = world_.clock.now() + kWaitSlice;
    const bool room = co_await console(is_stderr).drained(kConsoleBytesMax, deadline);
    if (!room || backlog_.empty()) continue;
    const Piece piece = std::move(backlog_.front());
    backlog_.pop_front();
    backlog_bytes_ -= piece.text.size();
    console(piece.is_stderr).write(piece.text);
    changed_.notify();
  }
}

void Tee::hurry() {
  hurry_ = true;
  for (const Piece& piece : std::exchange(backlog_, {})) {
    console(piece.is_stderr).write(piece.text);
  }
  backlog_bytes_ = 0;
  changed_.notify();
}

Task<void> Tee::watch_files() {
  while (failure_.empty()) {
    const auto busy = [](const Outlet* file) { return file->pending() > 0 || !file->failure().empty(); };
    if (!std::ranges::any_of(files(), busy)) co_await written_.wait();
    for (Outlet* file : files()) {
      co_await file->drained(0, world_.clock.now() + kWaitSlice);
      if (!file->failure().empty()) fail(file->failure());
    }
  }
}

Task<void> Tee::finish_files() {
  const Instant deadline = world_.clock.now() + kFilesEndMax;
  for (Outlet* outlet : files()) {
    const bool all = co_await outlet->drained(0, deadline);
    if (!outlet->failure().empty()) fail(outlet->failure());
    if (!all)
      fail(fmt::format("{} bytes could not be written to the log in {}", outlet->pending(),
                       format_duration(kFilesEndMax)));
  }
}

void Tee::fail(const std::string& reason) {
  if (!failure_.empty()) return;
  failure_ = reason;
  on_failure_();
}

std::vector<Outlet*> Tee::files() const {
  std::vector<Outlet*> all;
  for (const Stream* stream : {&out_, &err_}) {
    for (Outlet* outlet : {stream->file.get(), stream->filtered.get()}) {
      if (outlet) all.push_back(outlet);
    }
  }
  return all;
}

}  // namespace rubato::agent
