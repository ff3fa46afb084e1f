#include "provider/external_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "core/text.h"

namespace rubato::provider {

namespace {

using Json = nlohmann::json;

constexpr Duration kBackoffMin = 250ms;
constexpr Duration kBackoffMax = 30s;
constexpr Duration kStopPatience = 2s;
constexpr int kDeathsMax = 3;  // while one request waits: it may be what kills the program
constexpr size_t kLastWords = 5;
constexpr Duration kThrottleMin = 1s;

Duration backoff_after(int failures) {
  Duration delay = kBackoffMin;
  for (int i = 1; i < failures && delay < kBackoffMax; ++i) delay *= 2;
  return std::min(delay, kBackoffMax);
}

Task<void> try_to_write(std::shared_ptr<Process> process, std::string bytes) {
  try {
    co_await process->write(std::move(bytes));
  } catch (const Error&) {
    // It has ended or does not listen any more: its end tells why, or the deadline comes.
  }
}

}  // namespace

// Counts a request while its frame lives.
class ExternalProgram::Place {
 public:
  explicit Place(ExternalProgram& program) : program_(program) {
    ++program_.wanted_by_;
    program_.changed_.notify();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    leave();
    --program_.wanted_by_;
  }
  uint64_t enter(Call& call, const std::string& node, Instant deadline) {
    id_ = program_.next_id_++;
    Sent sent;
    sent.call = &call;
    sent.node = node;
    sent.deadline = deadline;
    program_.sent_.emplace(id_, std::move(sent));
    return id_;
  }
  void leave() {
    const auto it = program_.sent_.find(id_);
    if (it == program_.sent_.end()) return;
    const bool over = it->second.call->reply.has_value() || it->second.call->lost;
    if (over) {
      program_.sent_.erase(it);
    } else {
      it->second.call = nullptr;
    }
    id_ = 0;
    program_.changed_.notify();  // there may be room for another
  }

 private:
  ExternalProgram& program_;
  uint64_t id_ = 0;
};

ExternalProgram::ExternalProgram(World& world, ExternalProgramSpec spec, Log log)
    : world_(world),
      spec_(std::move(spec)),
      log_(log.with({{"provider", spec_.name}})),
      changed_(world.clock.loop()),
      listening_(world.clock.now()),
      kill_(world.clock.loop(), [this] { kill_if_due(); }),
      tasks_(world.clock.loop()) {
  CHECK(!spec_.argv.empty());
  tasks_.spawn(keep_listening(world.clock.loop(), listening_));
  tasks_.spawn(keep());
}

ExternalProgram::~ExternalProgram() { tasks_.cancel(); }

Task<void> ExternalProgram::keep() {
  while (true) {
    while (wanted_by_ == 0) co_await changed_.wait();
    co_await Sleep(world_.clock.loop(), not_before_);
    if (wanted_by_ > 0) co_await run_once();
  }
}

// From its start to its end. What went wrong is left in why_.
Task<void> ExternalProgram::run_once() {
  std::optional<Error> problem;
  try {
    SpawnSpec spawn;
    spawn.argv = spec_.argv;
    spawn.env = spec_.env;
    spawn.cwd = spec_.cwd;
    spawn.in = InputSource::kPipe;
    spawn.out.kind = spawn.err.kind = OutputTarget::Kind::kPipe;
    process_ = world_.processes.spawn(spawn);
    state_ = State::kGreeting;
    log_.info("provider's program started", {{"pid", process_->pid()}});
    co_await greet();
    co_await listen();
  } catch (const Error& error) {
    problem = error;
  }
  if (!process_) {
    over(Error(problem->code, "the provider's program cannot be started: " + problem->message, spec_.name,
               problem->hint));
    co_return;
  }
  // Whatever it says from here on answers nobody, but its last words may tell why.
  if (problem && !condemned_) condemn(*problem);
  while (std::optional<OutputChunk> chunk = co_await process_->output().pop()) {
    if (chunk->is_stderr) take_words(chunk->bytes);
  }
  const ExitStatus status = co_await process_->wait();
  kill_.disarm();
  take_words("\n");
  std::string text = join(last_output_, "\n  ");
  if (!text.empty()) text = "; the last it wrote:\n  " + text;
  if (condemned_) {
    over(Error(condemned_->code, condemned_->message + text, spec_.name, condemned_->hint));
  } else {
    over(Error(ErrorCode::kUnavailable, fmt::format("the provider's program ended: {}{}", describe(status), text),
               spec_.name, "it must go on until its standard input ends; see docs/external-providers.md"));
  }
}

// The process is gone, or never was.
void ExternalProgram::over(Error why) {
  log_.warning("provider's program is down", {{"why", why.message}, {"failures", in_a_row_ + 1}});
  process_.reset();
  state_ = State::kDown;
  greeting_.reset();
  condemned_.reset();
  out_ = err_ = LineBuffer();
  last_output_.clear();
  std::erase_if(sent_, [](const auto& entry) { return entry.second.call == nullptr; });
  for (auto& [id, sent] : sent_) sent.call->lost = true;
  ++failures_;
  ++in_a_row_;
  not_before_ = world_.clock.now() + backoff_after(in_a_row_);
  why_ = std::move(why);
  changed_.notify();
}

void ExternalProgram::condemn(Error why) {
  if (!process_ || condemned_) return;
  condemned_ = std::move(why);
  state_ = State::kDown;
  process_->close_input();
  process_->signal_group(SIGTERM);
  kill_at_ = listened() + kStopPatience;
  kill_.set(due(kill_at_));
}

void ExternalProgram::kill_if_due() {
  if (!process_) return;
  if (listened() < kill_at_) {
    kill_.set(due(kill_at_));
  } else {
    process_->signal_group(SIGKILL);
  }
}

Task<void> ExternalProgram::greet() {
  const Instant deadline = listened() + spec_.hello_timeout;
  Call call;
  call.hello = true;
  Place place(*this);
  const uint64_t id = place.enter(call, "", deadline);
  std::string hello = request_line(id, "hello", spec_.hello, spec_.hello_timeout);
  // A program that reads nothing must not keep us from its output; what it says decides.
  Scope writing(world_.clock.loop());
  writing.spawn(try_to_write(process_, std::move(hello)));
  while (!call.reply && listened() < deadline) {
    std::optional<OutputChunk> chunk = co_await process_->output().pop_until(due(deadline));
    if (!chunk && process_->output().closed()) co_return;  // it ended
    if (!chunk) continue;
    if (chunk->is_stderr) {
      take_words(chunk->bytes);
      continue;
    }
    out_.add(chunk->bytes);
    while (std::optional<std::string> line = next_line(out_)) take_line(std::move(*line));
  }
  if (!call.reply) throw too_late("hello", spec_.hello_timeout);
  if (const auto* failure = std::get_if<ExternalFailure>(&call.reply->what)) {
    throw to_error(*failure, spec_.name, "hello");
  }
  try {
    greeting_ = parse_greeting(std::get<Json>(call.reply->what));
  } catch (const Error& error) {
    throw Error(error.code, "the provider's program " + error.message, spec_.name, error.hint);
  }
  if (greeting_->name.empty()) greeting_->name = spec_.name;
  state_ = State::kUp;
  changed_.notify();
}

Task<void> ExternalProgram::listen() {
  if (state_ != State::kUp) co_return;
  while (std::optional<OutputChunk> chunk = co_await process_->output().pop()) {
    if (chunk->is_stderr) {
      take_words(chunk->bytes);
      continue;
    }
    out_.add(chunk->bytes);
    while (std::optional<std::string> line = next_line(out_)) {
      if (!condemned_) take_line(std::move(*line));
    }
  }
}

void ExternalProgram::take_line(std::string line) {
  if (trim(line).empty()) return;
  ExternalReply reply;
  try {
    reply = parse_reply(line);
  } catch (const Error& error) {
    throw Error(error.code, "the provider's program " + error.message, spec_.name,
                "standard output is for replies alone: write messages for people to standard error");
  }
  const auto it = sent_.find(reply.id);
  if (it == sent_.end()) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("the provider's program answered a request that nobody made: {}", shown(line)), spec_.name);
  }
  if (it->second.call == nullptr) {  // it was given up
    if (!std::holds_alternative<std::string>(reply.what)) sent_.erase(it);
    changed_.notify();
    return;
  }
  Call& call = *it->second.call;
  if (auto* text = std::get_if<std::string>(&reply.what)) {
    log_.info("provider's program says how far it is", {{"words", *text}});
    if (call.on_progress) call.on_progress(std::move(*text));
    return;
  }
  if (call.reply) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("the provider's program answered a request twice: {}", shown(line)), spec_.name);
  }
  if (!call.hello) in_a_row_ = 0;
  call.reply = std::move(reply);
  changed_.notify();
}

void ExternalProgram::take_words(std::string_view bytes) {
  err_.add(bytes);
  while (std::optional<std::string> line = next_line(err_)) {
    if (trim(*line).empty()) continue;
    const std::string text = shown(*line, 2000);
    log_.info("provider's program says", {{"words", text}});
    last_output_.push_back(text);
    if (last_output_.size() > kLastWords) last_output_.pop_front();
  }
}

Error ExternalProgram::too_late(const std::string& what, Duration timeout) const {
  return Error(ErrorCode::kUnavailable,
               fmt::format("the provider's program did not answer within {}: {}", format_duration(timeout), what),
               spec_.name, "it is started anew; answer create at once without \"host\", and describe later");
}

bool ExternalProgram::has_room(const std::string& node) const {
  if (state_ != State::kUp || sent_.size() >= static_cast<size_t>(greeting_->parallel)) return false;
  const auto same = [&](const auto& entry) { return entry.second.node == node; };
  return node.empty() || std::none_of(sent_.begin(), sent_.end(), same);
}

// A request that was given up has nobody else to mind its deadline.
Instant ExternalProgram::stop_what_hangs() {
  Instant next = Instant::max();
  for (const auto& [id, sent] : sent_) {
    if (sent.call != nullptr) continue;
    if (sent.deadline <= listened()) {
      condemn(Error(ErrorCode::kUnavailable, "the provider's program did not answer in time", spec_.name));
    } else {
      next = std::min(next, sent.deadline);
    }
  }
  return next;
}

// Until a request may be sent. Throws why the program is down when there is no hope: it died too often since the
// request came (`since`: failures_ at that time), or says that it can never work.
Task<void> ExternalProgram::wait_for_room(Instant deadline, uint64_t since, std::string node, std::string what) {
  while (!has_room(node)) {
    if (failures_ > since && (why_->code != ErrorCode::kUnavailable || failures_ - since >= kDeathsMax)) {
      throw Error(why_->code, fmt::format("{}: {}", what, why_->message), why_->where, why_->hint);
    }
    if (listened() >= deadline) {
      if (state_ != State::kUp) {
        throw Error(ErrorCode::kUnavailable, fmt::format("the provider's program was not up in time for: {}", what),
                    spec_.name);
      }
      throw Error(ErrorCode::kUnavailable, fmt::format("the provider's program had no time for: {}", what), spec_.name,
                  "let it take more requests at a time (\"parallel\" in its answer to hello)");
    }
    const Instant look_again = std::min(deadline, stop_what_hangs());
    co_await changed_.wait_until(due(look_again));
  }
}

Task<void> ExternalProgram::exchange(Call& call, std::string line, Instant deadline) {
  Scope writing(world_.clock.loop());
  writing.spawn(try_to_write(process_, std::move(line)));
  while (!call.reply && !call.lost && listened() < deadline) co_await changed_.wait_until(due(deadline));
}

Task<Json> ExternalProgram::request(std::string method, Json params, std::string what, Duration timeout,
                                    OnProgress on_progress) {
  const Instant deadline = listened() + timeout;
  Place place(*this);
  const uint64_t since = failures_;
  const std::string node = params.is_object() ? params.value("node", "") : "";
  Duration pause = kThrottleMin;
  while (true) {
    co_await wait_for_room(deadline, since, node, what);
    Call call;
    call.on_progress = on_progress;
    const uint64_t id = place.enter(call, node, deadline);
    std::string line = request_line(id, method, params, deadline - listened());
    co_await exchange(call, std::move(line), deadline);
    place.leave();
    if (!call.reply && !call.lost) {
      const Error late = too_late(what, timeout);
      condemn(late);
      throw late;
    }
    if (!call.reply) continue;  // to the next process
    auto* failure = std::get_if<ExternalFailure>(&call.reply->what);
    if (!failure) co_return std::move(std::get<Json>(call.reply->what));
    const Instant again = listened() + failure->retry_after.value_or(pause);
    if (failure->code != ExternalCode::kThrottled || again >= deadline) throw to_error(*failure, spec_.name, what);
    log_.info("provider's program is throttled", {{"request", what}});
    co_await Sleep(world_.clock.loop(), due(again));
    pause = std::min(pause * 2, kBackoffMax);
  }
}

Task<ExternalGreeting> ExternalProgram::greeting() {
  Place place(*this);
  const Instant deadline = listened() + spec_.hello_timeout;
  const uint64_t since = failures_;
  while (state_ != State::kUp) co_await wait_for_room(deadline, since, "", "hello");
  co_return *greeting_;
}

}  // namespace rubato::provider
